"""tool-parser:mistral, TP-11: Malformed answers do not raise."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = ['[TOOL_CALLS]get_weather[ARGS]{"days": ' + "7" * 5000 + "}"]
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
tokenizer.add_tokens(["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="mistral", enable_auto_tools=True)

text = "".join(DELTAS)
ids, raised = tokenizer.encode(text), None
try:
    Parser(tokenizer, request.tools).parse(text, request, True, ids)
except Exception as error:
    raised = f"{type(error).__name__}: {error}"
print("raised", raised)

# It printed:
# raised ValueError: Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; use sys.set_int_max_str_digits() to increase the limit
