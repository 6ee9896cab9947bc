"""reasoning-parser:kimi_k3, RP-19: A stop string that never comes changes nothing."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "<|open|>",
    "th",
    "in",
    "k",
    "<|sep|>",
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
    "<|close|>",
    "th",
    "in",
    "k",
    "<|sep|>",
    "<|open|>",
    "r",
    "e",
    "s",
    "p",
    "o",
    "n",
    "s",
    "e",
    "<|sep|>",
    "T",
    "h",
    "e",
    "n ",
    "I",
    " ",
    "say",
    " it",
    ".",
    "<|close|>",
    "r",
    "e",
    "s",
    "p",
    "o",
    "n",
    "s",
    "e",
    "<|sep|>",
    "",
]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<|open|>", "<|close|>", "<|sep|>"])
request = ChatCompletionRequest(messages=[])
Parser = ParserManager.get_parser(reasoning_parser_name="kimi_k3", enable_auto_tools=True)

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
print("and with a stop string, for which 5 letters are held back, but not their tokens:")
said = streamed(5)

# It printed:
# '<|open|>' -> None
# 'th' -> None
# 'in' -> None
# 'k' -> None
# '<|sep|>' -> None
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
# '<|close|>' -> None
# 'th' -> None
# 'in' -> None
# 'k' -> None
# '<|sep|>' -> None
# '<|open|>' -> None
# 'r' -> None
# 'e' -> None
# 's' -> None
# 'p' -> None
# 'o' -> None
# 'n' -> None
# 's' -> None
# 'e' -> None
# '<|sep|>' -> None
# 'T' -> {'content': 'T'}
# 'h' -> {'content': 'h'}
# 'e' -> {'content': 'e'}
# 'n ' -> {'content': 'n '}
# 'I' -> {'content': 'I'}
# ' ' -> {'content': ' '}
# 'say' -> {'content': 'say'}
# ' it' -> {'content': ' it'}
# '.' -> {'content': '.'}
# '<|close|>' -> None
# 'r' -> None
# 'e' -> None
# 's' -> None
# 'p' -> None
# 'o' -> None
# 'n' -> None
# 's' -> None
# 'e' -> None
# '<|sep|>' -> None
# '' -> None
# and with a stop string, for which 5 letters are held back, but not their tokens:
# '<|o' -> None
# 'pe' -> None
# 'n|' -> None
# '>' -> None
# 'think<|' -> None
# 's' -> None
# 'e' -> None
# 'p|' -> None
# '>' -> None
# 'F' -> {'reasoning': 'F'}
# 'i' -> {'reasoning': 'i'}
# 'rst' -> {'reasoning': 'rst'}
# ' I' -> {'reasoning': ' I'}
# ' ' -> {'reasoning': ' '}
# 't' -> {'reasoning': 't'}
# 'hink.<|cl' -> {'reasoning': 'hink.'}
# 'os' -> None
# 'e|' -> None
# '>' -> None
# 'think<|' -> None
# 'sep|><|o' -> {'content': 'sep|>'}
# 'p' -> None
# 'e' -> None
# 'n' -> None
# '|' -> None
# '>' -> None
# 'r' -> None
# 'e' -> None
# 's' -> None
# 'ponse<|' -> None
# 's' -> None
# 'e' -> None
# 'p' -> None
# '|>' -> None
# 'T' -> {'content': 'T'}
# 'h' -> {'content': 'h'}
# 'en ' -> {'content': 'en '}
# 'I s' -> {'content': 'I s'}
# 'a' -> {'content': 'a'}
# 'y it.<|cl' -> {'content': 'y it.'}
# 'o' -> None
# 's' -> None
# 'e' -> None
# '|' -> None
# '>' -> None
# 'r' -> None
# 'e' -> None
# 's' -> None
# 'ponse<|' -> None
# 'sep|>' -> None
