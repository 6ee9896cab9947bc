"""tool-parser:hy_v3, TP-21: The schema of a tool may be any that JSON Schema has."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "<tool_calls>",
    "\n",
    "<tool_call>",
    "get_w",
    "eathe",
    "r",
    "<tool_sep>",
    "\n",
    "<arg_key>",
    "city",
    "</arg_key>",
    "\n",
    "<arg_value>",
    "Paris",
    "</arg_value>",
    "\n",
    "</tool_call>",
    "\n",
    "</tool_calls>",
    "",
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": True},
                "$defs": {
                    "place": {"type": "string"},
                    "node": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "next": {"$ref": "#/$defs/node"},
                        },
                    },
                },
            },
        },
    },
]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens([
    "<tool_calls>",
    "</tool_calls>",
    "<tool_call>",
    "</tool_call>",
    "<tool_sep>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="hy_v3", enable_auto_tools=True)

parser, last, raised = Parser(tokenizer, request.tools), len(DELTAS), None
try:
    for number, text in enumerate(DELTAS, 1):
        ids = tokenizer.encode(text, add_special_tokens=number == last)
        parser.parse_delta(text, ids, request, [], finished=number == last)
except Exception as error:
    raised = f"{type(error).__name__}: {error}"
print("raised", raised)

# It printed:
# raised TypeError: argument of type 'bool' is not iterable
