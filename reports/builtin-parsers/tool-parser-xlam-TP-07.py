"""tool-parser:xlam, TP-07: Arguments that were sent are never taken back."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "True class= None &lt; ,} , ] \\\\u0022 \\"name\\": \\"f\\""}',
    "}",
    "]",
    "",
]
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["[TOOL_CALLS]"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="xlam", enable_auto_tools=True)

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
# whole: (None, '', [FunctionCall(id='call_0_...', name='get_weather', arguments='{"city": "True class= None &lt; ,} , ] \\\\u0022 \\"name\\": \\"f\\""}')])
# '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "True class= None &lt; ,} , ] \\\\u0022 \\"name\\": \\"f\\""}' -> {'tool_calls': [{'id': 'call_0_...', 'type': 'function', 'index': 0, 'function': {'name': 'get_weather'}}]}
# '}' -> {'tool_calls': [{'index': 0, 'function': {'arguments': '{'}}]}
# ']' -> {'tool_calls': [{'index': 0, 'function': {'arguments': '"city": "True class= None &lt; ,}'}}]}
# '' -> None
