"""tool-parser:apertus, TP-04: Streamed token by token, an answer says the same."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "It is < 3, and <",
    '<|tools_prefix|>[{"get_weather": ',
    '{"city": "Paris"}}]<|tools_suffix|>',
]
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<|tools_prefix|>", "<|tools_suffix|>"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="apertus", enable_auto_tools=True)

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
# whole: (None, 'It is < 3, and <', [FunctionCall(id='chatcmpl-tool-858c7526e3a0c5fc', name='get_weather', arguments='{"city": "Paris"}')])
# 'It is < 3, and <' -> {'content': 'It is < 3, and '}
# '<|tools_prefix|>[{"get_weather": ' -> None
# '{"city": "Paris"}}]<|tools_suffix|>' -> {'content': None, 'tool_calls': [{'id': 'chatcmpl-tool-87344bfbaacb53ce', 'type': 'function', 'index': 0, 'function': {'name': 'get_weather', 'arguments': ''}}, {'index': 0, 'function': {'arguments': '{"city": "Paris"}'}}]}
