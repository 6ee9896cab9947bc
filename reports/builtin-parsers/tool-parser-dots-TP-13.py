"""tool-parser:dots, TP-13: Arguments have the types that the schema says.

It says get_time({"city": "null"}).
"""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    '<dots_function_call>\n<invoke name="get_time">\n<parameter name="city">null</parameter>\n</invoke>\n</dots_function_call>',
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_time",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "name": {"type": "string"}},
            },
        },
    },
]
tokenizer = ByT5Tokenizer()
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="dots", enable_auto_tools=True)

text = "".join(DELTAS)
ids = tokenizer.encode(text)
whole = Parser(tokenizer, request.tools).parse(text, request, True, ids)
print("whole:", whole)

# It printed:
# whole: (None, None, [FunctionCall(id='chatcmpl-tool-ad1c1c3ecd49259f', name='get_time', arguments='{"city": null}')])
