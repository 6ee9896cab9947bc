"""tool-parser:hy_v4, TP-05: Where an answer is cut makes no difference."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "<tool_calls><tool_call>get_weather</tool_call><tool_call>get_weather</tool_call><tool_call>get_weather<arg_key>city</arg_key><arg_value>xy</arg_value></tool_call></tool_calls>",
]
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens([
    "<tool_calls>",
    "</tool_calls>",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="hy_v4", enable_auto_tools=True)

text = "".join(DELTAS)
ids = tokenizer.encode(text)
whole = Parser(tokenizer, request.tools).parse(text, request, True, ids)
print("whole:", whole)

parser, said = Parser(tokenizer, request.tools), []
for number, text in enumerate(DELTAS, 1):
    last = number == len(DELTAS)
    ids = tokenizer.encode(text, add_special_tokens=last)
    said.append(parser.parse_delta(text, ids, request, [], finished=last))
    print(repr(text), "->", said[-1] and said[-1].model_dump(exclude_unset=True))

# It printed:
# whole: (None, None, [FunctionCall(id='chatcmpl-tool-...', name='get_weather', arguments='{}'), FunctionCall(id='chatcmpl-tool-...', name='get_weather', arguments='{}'), FunctionCall(id='chatcmpl-tool-...', name='get_weather', arguments='{"city": "xy"}')])
# '<tool_calls><tool_call>get_weather</tool_call><tool_call>get_weather</tool_call><tool_call>get_weather<arg_key>city</arg_key><arg_value>xy</arg_value></tool_call></tool_calls>' -> {'tool_calls': [{'id': 'chatcmpl-tool-...', 'type': 'function', 'index': 0, 'function': {'name': 'get_weather</tool_call><tool_call>get_weather</tool_call><tool_call>get_weather', 'arguments': '{"city": "xy"}'}}]}
