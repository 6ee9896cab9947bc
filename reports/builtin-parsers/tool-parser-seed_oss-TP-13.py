"""tool-parser:seed_oss, TP-13: Arguments have the types that the schema says.

It says get_route({"end": {"city": "Paris", "floor": 3}}).
"""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    '<seed:tool_call>\n<function=get_route>\n<parameter=end>{"city": "Paris", "floor": 3}</parameter>\n</function>\n</seed:tool_call>',
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
tokenizer.add_tokens(["<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="seed_oss", enable_auto_tools=True)

text = "".join(DELTAS)
ids = tokenizer.encode(text)
whole = Parser(tokenizer, request.tools).parse(text, request, True, ids)
print("whole:", whole)

# It printed:
# whole: (None, None, [FunctionCall(id='chatcmpl-tool-...', name='get_route', arguments='{"end": "{\\"city\\": \\"Paris\\", \\"floor\\": 3}"}')])
