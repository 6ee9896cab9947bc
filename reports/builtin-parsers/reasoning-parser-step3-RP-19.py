"""reasoning-parser:step3, RP-19: A stop string that never comes changes nothing."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
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
    "</think>",
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
tokenizer.add_tokens(["<think>", "</think>"])
request = ChatCompletionRequest(messages=[])
Parser = ParserManager.get_parser(reasoning_parser_name="step3", enable_auto_tools=True)

def streamed(held):
    parser, said, rest = Parser(tokenizer), [], ""
    for number, each in enumerate(DELTAS, 1):
        last = number == len(DELTAS)
        ids = tokenizer.encode(each, add_special_tokens=last)
        rest += each
        ready = len(rest) if last else max(0, len(rest) - held)
        said.append(parser.parse_delta(rest[:ready], ids, request, tokenizer.encode('<think>'), finished=last))
        print(repr(rest[:ready]), "->", said[-1] and said[-1].model_dump(exclude_unset=True))
        rest = rest[ready:]
    return said

free = streamed(0)
print("and with a stop string, for which 5 letters are held back, but not their tokens:")
said = streamed(5)

# It printed:
# 'F' -> {'reasoning': 'F'}
# 'i' -> {'reasoning': 'i'}
# 'rs' -> {'reasoning': 'rs'}
# 't' -> {'reasoning': 't'}
# ' ' -> {'reasoning': ' '}
# 'I' -> {'reasoning': 'I'}
# ' th' -> {'reasoning': ' th'}
# 'in' -> {'reasoning': 'in'}
# 'k' -> {'reasoning': 'k'}
# '.' -> {'reasoning': '.'}
# '</think>' -> None
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
# and with a stop string, for which 5 letters are held back, but not their tokens:
# '' -> {'reasoning': ''}
# '' -> {'reasoning': ''}
# '' -> {'reasoning': ''}
# '' -> {'reasoning': ''}
# 'F' -> {'reasoning': 'F'}
# 'i' -> {'reasoning': 'i'}
# 'rst' -> {'reasoning': 'rst'}
# ' I' -> {'reasoning': ' I'}
# ' ' -> {'reasoning': ' '}
# 't' -> {'reasoning': 't'}
# 'hink.</t' -> None
# 'h' -> {'content': 'h'}
# 'i' -> {'content': 'i'}
# 'n' -> {'content': 'n'}
# 'k>' -> {'content': 'k>'}
# 'T' -> {'content': 'T'}
# 'h' -> {'content': 'h'}
# 'en ' -> {'content': 'en '}
# 'I s' -> {'content': 'I s'}
# 'a' -> {'content': 'a'}
# 'y it.' -> {'content': 'y it.'}
