"""tool-parser:apertus, TP-07: Arguments that were sent are never taken back."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = ['<|tools_prefix|>[{"get_weather": {"days": -3, "height": -0.', "5}}]", "<|tools_suffix|>"]
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
# whole: (None, None, [FunctionCall(id='chatcmpl-tool-...', name='get_weather', arguments='{"days": -3, "height": -0.5}')])
# '<|tools_prefix|>[{"get_weather": {"days": -3, "height": -0.' -> {'content': None, 'tool_calls': [{'id': 'chatcmpl-tool-...', 'type': 'function', 'index': 0, 'function': {'name': 'get_weather', 'arguments': ''}}, {'index': 0, 'function': {'arguments': '{"days": -3, "height": 0'}}]}
# '5}}]' -> None
# '<|tools_suffix|>' -> {'content': None, 'tool_calls': [{'index': 0, 'function': {'arguments': '-0.5}'}}]}
