"""tool-parser:functiongemma, TP-07: Arguments that were sent are never taken back."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "<start_function_call>call:get_weather{city:<escape>xy<escape>,unit:<escape>",
    "x",
    "y",
    "<escape>}<end_function_call>",
]
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<start_function_call>", "<end_function_call>", "<escape>"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="functiongemma", enable_auto_tools=True)

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
# whole: (None, None, [FunctionCall(id='chatcmpl-tool-...', name='get_weather', arguments='{"city": "xy", "unit": "xy"}')])
# '<start_function_call>call:get_weather{city:<escape>xy<escape>,unit:<escape>' -> None
# 'x' -> {'tool_calls': [{'id': 'chatcmpl-tool-...', 'type': 'function', 'index': 0, 'function': {'name': 'get_weather'}}]}
# 'y' -> {'tool_calls': [{'index': 0, 'function': {'arguments': '{"city": "xy"}'}}]}
# '<escape>}<end_function_call>' -> {'tool_calls': [{'index': 0, 'function': {'arguments': ' "unit": "xy"}'}}]}
