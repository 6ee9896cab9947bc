"""tool-parser:minicpm5, TP-05: Where an answer is cut makes no difference."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    '<function name="get_weather"><param name="city">Paris</param></function>\n<function name="get_time"><param name="city">Rome</param></function>',
]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather"}},
    {"type": "function", "function": {"name": "get_time"}},
]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<function", "</function>", "<param", "</param>"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="minicpm5", enable_auto_tools=True)

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
# whole: (None, None, [FunctionCall(id='call_...', name='get_weather', arguments='{"city": "Paris"}'), FunctionCall(id='call_...', name='get_time', arguments='{"city": "Rome"}')])
# '<function name="get_weather"><param name="city">Paris</param></function>\n<function name="get_time"><param name="city">Rome</param></function>' -> {'tool_calls': [{'id': 'chatcmpl-tool-...', 'type': 'function', 'index': 0, 'function': {'name': 'get_weather', 'arguments': '{"city": "Paris"}'}}]}
