"""tool-parser:internlm, TP-13: Arguments have the types that the schema says."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    '<|action_start|><|plugin|>{"name": "get_weather", "parameters": {"city": "Paris"}}<|action_end|>',
]
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<|action_start|>", "<|plugin|>", "<|action_end|>"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="internlm", enable_auto_tools=True)

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
# ChatCompletionRequest: (None, None, [FunctionCall(id='chatcmpl-tool-...', name='get_weather', arguments='{"city": "Paris"}')])
# ResponsesRequest: raised AttributeError: 'FunctionTool' object has no attribute 'function'
