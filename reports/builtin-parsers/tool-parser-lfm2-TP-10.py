"""tool-parser:lfm2, TP-10: An answer may end anywhere.

It says get_weather({"city": "Paris"}).
"""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = ["Let me look. <|tool_call_start|>[get_weather(city='Paris'), get_time(city='"]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather"}},
    {"type": "function", "function": {"name": "get_time"}},
]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<|tool_call_start|>", "<|tool_call_end|>"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="lfm2", enable_auto_tools=True)

text = "".join(DELTAS)
ids = tokenizer.encode(text)
whole = Parser(tokenizer, request.tools).parse(text, request, True, ids)
print("whole:", whole)

# It printed:
# whole: (None, "Let me look. <|tool_call_start|>[get_weather(city='Paris'), get_time(city='", None)
