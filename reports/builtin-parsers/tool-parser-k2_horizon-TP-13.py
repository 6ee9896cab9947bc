"""tool-parser:k2_horizon, TP-13: Arguments have the types that the schema says.

It says get_route({"end": {"city": "Paris", "floor": 3}}).
"""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    '<ifm|tool_calls><ifm|tool_call>get_route<ifm|arg_key>end</ifm|arg_key><ifm|arg_value>{"city": "Paris", "floor": 3}</ifm|arg_value></ifm|tool_call></ifm|tool_calls>',
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_route",
            "parameters": {
                "type": "object",
                "properties": {"end": {"$ref": "#/$defs/Place"}},
                "$defs": {
                    "Place": {
                        "type": "object",
                        "properties": {"city": {"type": "string"}, "floor": {"type": "integer"}},
                    },
                },
            },
        },
    },
]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens([
    "<ifm|tool_calls>",
    "</ifm|tool_calls>",
    "<ifm|tool_call>",
    "</ifm|tool_call>",
    "<ifm|arg_key>",
    "</ifm|arg_key>",
    "<ifm|arg_value>",
    "</ifm|arg_value>",
    "<ifm|think>",
    "</ifm|think>",
])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="k2_horizon", enable_auto_tools=True)

text = "".join(DELTAS)
ids = tokenizer.encode(text)
whole = Parser(tokenizer, request.tools).parse(text, request, True, ids)
print("whole:", whole)

# It printed:
# whole: (None, None, [FunctionCall(id='chatcmpl-tool-...', name='get_route', arguments='{"end": "{\\"city\\": \\"Paris\\", \\"floor\\": 3}"}')])
