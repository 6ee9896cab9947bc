"""tool-parser:step3, TP-21: The schema of a tool may be any that JSON Schema has."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>get_weather\n<steptml:invoke name="get_weather"><steptml:parameter name="city">Paris</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
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
    "<｜tool_calls_begin｜>",
    "<｜tool_call_begin｜>",
    "<｜tool_sep｜>",
    "<｜tool_call_end｜>",
    "<｜tool_calls_end｜>",
])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="step3", enable_auto_tools=True)

text = "".join(DELTAS)
ids, raised = tokenizer.encode(text), None
try:
    Parser(tokenizer, request.tools).parse(text, request, True, ids)
except Exception as error:
    raised = f"{type(error).__name__}: {error}"
print("raised", raised)

# It printed:
# raised AttributeError: 'bool' object has no attribute 'get'
