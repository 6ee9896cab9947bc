"""tool-parser:poolside_v1, TP-11: Malformed answers do not raise."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "<tool_call>get_weather<arg_key>days</arg_key><arg_value>" + "7" * 617,
    "7" * 626,
    "7" * 626,
    "7" * 626,
    "7" * 626,
    "7" * 626,
    "7" * 626,
    "7" * 626,
    "7</arg_value></tool_call>",
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
tokenizer.add_tokens([
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<think>",
    "</think>",
])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="poolside_v1", enable_auto_tools=True)

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
