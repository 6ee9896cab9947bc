"""reasoning-parser:minimax_m3, RP-19: A stop string that never comes changes nothing."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "<mm:think>",
    "F",
    "i",
    "rs",
    "t",
    " ",
    "I",
    " th",
    "in",
    "k",
    ".",
    "</mm:think>",
    "T",
    "h",
    "e",
    "n ",
    "I",
    " ",
    "say",
    " it",
    ".",
    "",
]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<mm:think>", "</mm:think>"])
request = ChatCompletionRequest(messages=[])
Parser = ParserManager.get_parser(reasoning_parser_name="minimax_m3", enable_auto_tools=True)

def streamed(held):
    parser, said, rest = Parser(tokenizer), [], ""
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
print("and with a stop string, for which 40 letters are held back, but not their tokens:")
said = streamed(40)

# It printed:
# '<mm:think>' -> None
# 'F' -> {'content': None, 'reasoning': 'F'}
# 'i' -> {'content': None, 'reasoning': 'i'}
# 'rs' -> {'content': None, 'reasoning': 'rs'}
# 't' -> {'content': None, 'reasoning': 't'}
# ' ' -> {'content': None, 'reasoning': ' '}
# 'I' -> {'content': None, 'reasoning': 'I'}
# ' th' -> {'content': None, 'reasoning': ' th'}
# 'in' -> {'content': None, 'reasoning': 'in'}
# 'k' -> {'content': None, 'reasoning': 'k'}
# '.' -> {'content': None, 'reasoning': '.'}
# '</mm:think>' -> None
# 'T' -> {'content': 'T'}
# 'h' -> {'content': 'h'}
# 'e' -> {'content': 'e'}
# 'n ' -> {'content': 'n '}
# 'I' -> {'content': 'I'}
# ' ' -> {'content': ' '}
# 'say' -> {'content': 'say'}
# ' it' -> {'content': ' it'}
# '.' -> {'content': '.'}
# '' -> {'content': ''}
# and with a stop string, for which 40 letters are held back, but not their tokens:
# '' -> None
# '' -> None
# '' -> None
# '' -> None
# '' -> None
# '' -> None
# '' -> None
# '' -> None
# '' -> None
# '' -> None
# '' -> None
# '' -> None
# '' -> {'content': ''}
# '' -> {'content': ''}
# '' -> {'content': ''}
# '' -> {'content': ''}
# '<' -> {'content': '<'}
# 'm' -> {'content': 'm'}
# 'm:t' -> {'content': 'm:t'}
# 'hin' -> {'content': 'hin'}
# 'k' -> {'content': 'k'}
# '>First I think.</mm:think>Then I say it.' -> {'content': '>First I think.</mm:think>Then I say it.'}
