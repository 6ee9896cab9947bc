"""tool-parser:minicpm5, TP-13: Arguments have the types that the schema says."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = ['<function name="get_weather"><param name="city">Paris</param></function>']
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<function", "</function>", "<param", "</param>"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="minicpm5", enable_auto_tools=True)

text, said = "".join(DELTAS), []
ids = tokenizer.encode(text)
flat = [{"type": "function", **tool["function"]} for tool in TOOLS]
for asked in (request, ResponsesRequest(input="x", tools=flat)):
    try:
        said.append(Parser(tokenizer, asked.tools).parse(text, asked, True, ids))
    except Exception as error:
        said.append(f"raised {type(error).__name__}: {error}")
    print(f"{type(asked).__name__}:", said[-1])

# It printed:
# ChatCompletionRequest: (None, None, [FunctionCall(id='call_...', name='get_weather', arguments='{"city": "Paris"}')])
# ResponsesRequest: raised AttributeError: 'FunctionTool' object has no attribute 'function'
