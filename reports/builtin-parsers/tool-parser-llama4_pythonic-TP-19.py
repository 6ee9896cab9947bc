"""tool-parser:llama4_pythonic, TP-19: A stop string that never comes changes nothing."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "<|python_start|>",
    "[",
    "get_w",
    "eathe",
    "r",
    "(city",
    "=",
    "'",
    "Paris",
    "'",
    ")",
    "]",
    "<|python_end|>",
    "",
]
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<|python_start|>", "<|python_end|>"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="llama4_pythonic", enable_auto_tools=True)

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
# '<|python_start|>' -> None
# '[' -> None
# 'get_w' -> None
# 'eathe' -> None
# 'r' -> None
# '(city' -> None
# '=' -> None
# "'" -> {'tool_calls': [{'id': 'chatcmpl-tool-...', 'type': 'function', 'index': 0, 'function': {'name': 'get_weather', 'arguments': '{"city": "'}}]}
# 'Paris' -> {'tool_calls': [{'id': None, 'index': 0, 'function': {'arguments': 'Paris'}}]}
# "'" -> None
# ')' -> {'tool_calls': [{'id': None, 'index': 0, 'function': {'arguments': '"}'}}]}
# ']' -> {'content': ''}
# '<|python_end|>' -> {'content': ''}
# '' -> {'content': ''}
# and with a stop string, for which 5 letters are held back, but not their tokens:
# '<|python_st' -> {'content': '<|python_st'}
# 'a' -> {'content': 'a'}
# 'rt|>[' -> None
# 'get_w' -> None
# 'e' -> None
# 'ather' -> None
# '(' -> None
# 'c' -> None
# "ity='" -> {'tool_calls': [{'id': 'chatcmpl-tool-...', 'type': 'function', 'index': 0, 'function': {'name': 'get_weather', 'arguments': '{"city": "'}}]}
# 'P' -> {'tool_calls': [{'id': None, 'index': 0, 'function': {'arguments': 'P'}}]}
# 'a' -> {'tool_calls': [{'id': None, 'index': 0, 'function': {'arguments': 'a'}}]}
# 'r' -> {'tool_calls': [{'id': None, 'index': 0, 'function': {'arguments': 'r'}}]}
# "is')]<|python_" -> None
# 'end|>' -> {'tool_calls': [{'id': None, 'index': 0, 'function': {'arguments': 'is"}'}}]}
