"""tool-parser:phi4_mini_json, TP-06: Text without a call is content, all of it.

It says content 'It is this:\\n```python\\nprint(1)\\n```\\nNothing else.'.
"""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "I",
    "t",
    " ",
    "is ",
    "th",
    "is",
    ":",
    "\n",
    "`",
    "`",
    "`",
    "p",
    "y",
    "th",
    "o",
    "n",
    "\n",
    "p",
    "r",
    "in",
    "t",
    "(",
    "1",
    ")",
    "\n",
    "`",
    "`",
    "`",
    "\n",
    "N",
    "o",
    "th",
    "in",
    "g",
    " ",
    "e",
    "l",
    "s",
    "e",
    ".",
    "",
]
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
tokenizer = ByT5Tokenizer()
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="phi4_mini_json", enable_auto_tools=True)

parser, said = Parser(tokenizer, request.tools), []
for number, text in enumerate(DELTAS, 1):
    last = number == len(DELTAS)
    ids = tokenizer.encode(text, add_special_tokens=last)
    said.append(parser.parse_delta(text, ids, request, [], finished=last))
    print(repr(text), "->", said[-1] and said[-1].model_dump(exclude_unset=True))

# It printed:
# 'I' -> None
# 't' -> None
# ' ' -> None
# 'is ' -> None
# 'th' -> None
# 'is' -> None
# ':' -> None
# '\n' -> None
# '`' -> None
# '`' -> None
# '`' -> None
# 'p' -> None
# 'y' -> None
# 'th' -> None
# 'o' -> None
# 'n' -> None
# '\n' -> None
# 'p' -> None
# 'r' -> None
# 'in' -> None
# 't' -> None
# '(' -> None
# '1' -> None
# ')' -> None
# '\n' -> None
# '`' -> None
# '`' -> None
# '`' -> None
# '\n' -> None
# 'N' -> None
# 'o' -> None
# 'th' -> None
# 'in' -> None
# 'g' -> None
# ' ' -> None
# 'e' -> None
# 'l' -> None
# 's' -> None
# 'e' -> None
# '.' -> None
# '' -> None
