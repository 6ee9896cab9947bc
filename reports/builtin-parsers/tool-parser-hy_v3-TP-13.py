"""tool-parser:hy_v3, TP-13: Arguments have the types that the schema says."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>\n</tool_calls>",
]
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens([
    "<tool_calls>",
    "</tool_calls>",
    "<tool_call>",
    "</tool_call>",
    "<tool_sep>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="hy_v3", enable_auto_tools=True)

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
# ResponsesRequest: (None, None, [])
