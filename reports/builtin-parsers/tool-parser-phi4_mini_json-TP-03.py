"""tool-parser:phi4_mini_json, TP-03: A whole answer gives the calls that are in it.

It says get_weather({"city": "True class= None &lt; ,} , ] \\\\u0022 \\"name\\": \\"f\\""}).
"""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    'functools[{"name": "get_weather", "arguments": {"city": "True class= None &lt; ,} , ] \\\\u0022 \\"name\\": \\"f\\""}}]',
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    },
]
tokenizer = ByT5Tokenizer()
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="phi4_mini_json", enable_auto_tools=True)

text = "".join(DELTAS)
ids = tokenizer.encode(text)
whole = Parser(tokenizer, request.tools).parse(text, request, True, ids)
print("whole:", whole)

# It printed:
# whole: (None, None, [])
