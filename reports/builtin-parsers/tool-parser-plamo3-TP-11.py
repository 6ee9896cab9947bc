"""tool-parser:plamo3, TP-11: Malformed answers do not raise."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    '<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>get_weather<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{"city": ' + "[" * 2000 + "' + ']' * 2000 + '}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>",
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
Parser = ParserManager.get_parser(tool_parser_name="plamo3", enable_auto_tools=True)

text = "".join(DELTAS)
ids, raised = tokenizer.encode(text), None
try:
    Parser(tokenizer, request.tools).parse(text, request, True, ids)
except Exception as error:
    raised = f"{type(error).__name__}: {error}"
print("raised", raised)

# It printed:
# raised RecursionError: maximum recursion depth exceeded while decoding a JSON array from a unicode string
