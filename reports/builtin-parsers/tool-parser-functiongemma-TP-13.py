"""tool-parser:functiongemma, TP-13: Arguments have the types that the schema says.

It says get_weather({"city": "42"}).
"""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = ["<start_function_call>call:get_weather{city:<escape>42<escape>}<end_function_call>"]
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
tokenizer.add_tokens(["<start_function_call>", "<end_function_call>", "<escape>"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="functiongemma", enable_auto_tools=True)

text = "".join(DELTAS)
ids = tokenizer.encode(text)
whole = Parser(tokenizer, request.tools).parse(text, request, True, ids)
print("whole:", whole)

# It printed:
# whole: (None, None, [FunctionCall(id='chatcmpl-tool-...', name='get_weather', arguments='{"city": 42}')])
