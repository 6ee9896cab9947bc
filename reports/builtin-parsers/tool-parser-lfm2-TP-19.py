"""tool-parser:lfm2, TP-19: A stop string that never comes changes nothing."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "<|tool_call_start|>",
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
    "<|tool_call_end|>",
    "",
]
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<|tool_call_start|>", "<|tool_call_end|>"])
request = ChatCompletionRequest(messages=[], tools=TOOLS)
Parser = ParserManager.get_parser(tool_parser_name="lfm2", enable_auto_tools=True)

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
# '<|tool_call_start|>' -> None
# '[' -> None
# 'get_w' -> None
# 'eathe' -> None
# 'r' -> None
# '(city' -> None
# '=' -> None
# "'" -> {'content': None, 'tool_calls': [{'id': 'chatcmpl-tool-...', 'type': 'function', 'index': 0, 'function': {'name': 'get_weather', 'arguments': '{"city": "'}}]}
# 'Paris' -> {'content': None, 'tool_calls': [{'id': None, 'index': 0, 'function': {'arguments': 'Paris'}}]}
# "'" -> None
# ')' -> {'content': None, 'tool_calls': [{'id': None, 'index': 0, 'function': {'arguments': '"}'}}]}
# ']' -> {'content': ''}
# '<|tool_call_end|>' -> {'content': ''}
# '' -> {'content': ''}
# and with a stop string, for which 5 letters are held back, but not their tokens:
# '<|tool_call_st' -> {'content': '<|tool_call_st'}
# 'a' -> {'content': 'a'}
# 'rt|>[' -> None
# 'get_w' -> None
# 'e' -> None
# 'ather' -> None
# '(' -> None
# 'c' -> None
# "ity='" -> {'content': None, 'tool_calls': [{'id': 'chatcmpl-tool-...', 'type': 'function', 'index': 0, 'function': {'name': 'get_weather', 'arguments': '{"city": "'}}]}
# 'P' -> {'content': None, 'tool_calls': [{'id': None, 'index': 0, 'function': {'arguments': 'P'}}]}
# 'a' -> {'content': None, 'tool_calls': [{'id': None, 'index': 0, 'function': {'arguments': 'a'}}]}
# 'r' -> {'content': None, 'tool_calls': [{'id': None, 'index': 0, 'function': {'arguments': 'r'}}]}
# "is')]<|tool_call_" -> None
# 'end|>' -> {'content': None, 'tool_calls': [{'id': None, 'index': 0, 'function': {'arguments': 'is"}'}}]}
