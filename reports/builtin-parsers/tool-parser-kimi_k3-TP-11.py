"""tool-parser:kimi_k3, TP-11: Malformed answers do not raise."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    '<|open|>tools<|sep|><|open|>call tool="get_weather" index="0"<|sep|><|open|>argument key="days" type="number"<|sep|>' + "7" * 579,
    "7" * 633,
    "7" * 633,
    "7" * 633,
    "7" * 633,
    "7" * 633,
    "7" * 633,
    "7" * 623 + "<|close|>argument<|sep|><|close|>call<|sep|><|close|>too",
    "ls<|sep|>",
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"days": {"type": "integer"}}},
        },
    },
]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<|open|>", "<|close|>", "<|sep|>"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="kimi_k3", enable_auto_tools=True)

parser, last, raised = Parser(tokenizer, request.tools), len(DELTAS), None
try:
    for number, text in enumerate(DELTAS, 1):
        ids = tokenizer.encode(text, add_special_tokens=number == last)
        parser.parse_delta(text, ids, request, [], finished=number == last)
except Exception as error:
    raised = f"{type(error).__name__}: {error}"
print("raised", raised)

# It printed:
# raised ValueError: Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; use sys.set_int_max_str_digits() to increase the limit
