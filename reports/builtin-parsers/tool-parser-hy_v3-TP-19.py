"""tool-parser:hy_v3, TP-19: A stop string that never comes changes nothing."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "<tool_calls>",
    "\n",
    "<tool_call>",
    "get_w",
    "eathe",
    "r",
    "<tool_sep>",
    "\n",
    "<arg_key>",
    "city",
    "</arg_key>",
    "\n",
    "<arg_value>",
    "Paris",
    "</arg_value>",
    "\n",
    "</tool_call>",
    "\n",
    "</tool_calls>",
    "",
]
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens([
    "<tool_calls>",
    "</tool_calls>",
    "<tool_call>",
    "</tool_call>",
    "<tool_sep>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="hy_v3", enable_auto_tools=True)

def streamed(held):
    parser, said, rest = Parser(tokenizer, request.tools), [], ""
    for number, each in enumerate(DELTAS, 1):
        last = number == len(DELTAS)
        ids = tokenizer.encode(each, add_special_tokens=last)
        rest += each
        ready = len(rest) if last else max(0, len(rest) - held)
        said.append(parser.parse_delta(rest[:ready], ids, request, [], finished=last))
        print(repr(rest[:ready]), "->", said[-1] and said[-1].model_dump(exclude_unset=True))
        rest = rest[ready:]
    return said

free = streamed(0)
print("and with a stop string, for which 5 letters are held back, but not their tokens:")
said = streamed(5)

# It printed:
# '<tool_calls>' -> None
# '\n' -> None
# '<tool_call>' -> None
# 'get_w' -> None
# 'eathe' -> None
# 'r' -> None
# '<tool_sep>' -> {'content': None, 'tool_calls': [{'id': 'chatcmpl-tool-...', 'type': 'function', 'index': 0, 'function': {'name': 'get_weather'}}]}
# '\n' -> {'tool_calls': [{'index': 0, 'function': {'arguments': '{'}}]}
# '<arg_key>' -> None
# 'city' -> None
# '</arg_key>' -> None
# '\n' -> None
# '<arg_value>' -> {'tool_calls': [{'index': 0, 'function': {'arguments': '"city": "'}}]}
# 'Paris' -> {'tool_calls': [{'index': 0, 'function': {'arguments': 'Paris'}}]}
# '</arg_value>' -> {'tool_calls': [{'index': 0, 'function': {'arguments': '"'}}]}
# '\n' -> None
# '</tool_call>' -> {'tool_calls': [{'index': 0, 'function': {'arguments': '}'}}]}
# '\n' -> None
# '</tool_calls>' -> None
# '' -> None
# and with a stop string, for which 5 letters are held back, but not their tokens:
# '<tool_c' -> None
# 'a' -> None
# 'lls>\n<tool_' -> None
# 'call>' -> None
# 'get_w' -> None
# 'e' -> None
# 'ather<tool' -> None
# '_' -> None
# 'sep>\n<arg' -> None
# '_key' -> None
# '>city</arg' -> None
# '_' -> None
# 'key>\n<arg_v' -> None
# 'alue>' -> None
# 'Paris</arg_v' -> None
# 'a' -> None
# 'lue>\n</tool_' -> None
# 'c' -> None
# 'all>\n</tool_c' -> None
# 'alls>' -> None
