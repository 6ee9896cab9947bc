"""tool-parser:apertus, TP-05: Where an answer is cut makes no difference."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = ["Let me look. <|tools_prefix|>", '[{"get_weather": {"city": "Paris"}}]<|tools_suffix|>']
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
# whole: (None, 'Let me look.', [FunctionCall(id='chatcmpl-tool-8f7724ca334d11ae', name='get_weather', arguments='{"city": "Paris"}')])
# 'Let me look. <|tools_prefix|>' -> None
# '[{"get_weather": {"city": "Paris"}}]<|tools_suffix|>' -> {'content': None, 'tool_calls': [{'id': 'chatcmpl-tool-94bc74567199c3ba', 'type': 'function', 'index': 0, 'function': {'name': 'get_weather', 'arguments': ''}}, {'index': 0, 'function': {'arguments': '{"city": "Paris"}'}}]}
