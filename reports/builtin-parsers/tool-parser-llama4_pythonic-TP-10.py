"""tool-parser:llama4_pythonic, TP-10: An answer may end anywhere.

It says get_weather({"city": "Paris"}).
"""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = ["<|python_start|>[get_weather(city='Paris'), get_time(city='"]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather"}},
    {"type": "function", "function": {"name": "get_time"}},
]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<|python_start|>", "<|python_end|>"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="llama4_pythonic", enable_auto_tools=True)

text = "".join(DELTAS)
ids = tokenizer.encode(text)
whole = Parser(tokenizer, request.tools).parse(text, request, True, ids)
print("whole:", whole)

# It printed:
# whole: (None, "<|python_start|>[get_weather(city='Paris'), get_time(city='", None)
