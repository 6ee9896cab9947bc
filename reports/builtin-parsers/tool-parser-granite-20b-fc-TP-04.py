"""tool-parser:granite-20b-fc, TP-04: Streamed token by token, an answer says the same."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = ['Let me look. <function_call> {"name": "get_weather", "arguments": {"city": "Paris"}}']
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
tokenizer = ByT5Tokenizer()
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="granite-20b-fc", enable_auto_tools=True)

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
# whole: (None, 'Let me look. ', [FunctionCall(id='chatcmpl-tool-...', name='get_weather', arguments='{"city": "Paris"}')])
# 'Let me look. <function_call> {"name": "get_weather", "arguments": {"city": "Paris"}}' -> {'content': 'Let me look. <function_call> {"name": "get_weather", "arguments": {"city": "Paris"}}'}
