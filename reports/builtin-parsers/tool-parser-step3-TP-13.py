"""tool-parser:step3, TP-13: Arguments have the types that the schema says.

It says get_weather({"options": {"a": "x"}}).
"""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>get_weather\n<steptml:invoke name="get_weather"><steptml:parameter name="options">{"a": "x"}</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"options": {"type": "object"}}},
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
ids = tokenizer.encode(text)
whole = Parser(tokenizer, request.tools).parse(text, request, True, ids)
print("whole:", whole)

# It printed:
# whole: (None, None, [FunctionCall(id='chatcmpl-tool-ac658020e63cff27', name='get_weather', arguments='{"options": "{\\"a\\": \\"x\\"}"}')])
