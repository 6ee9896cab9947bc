"""reasoning-parser:granite, RP-04: Streamed token by token, an answer says the same."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "Here is my thought process:",
    " First I think.\n\nHer",
    "e ",
    "is my response: Then I say it.",
]
tokenizer = ByT5Tokenizer()
request = ChatCompletionRequest(messages=[])
Parser = ParserManager.get_parser(reasoning_parser_name="granite", enable_auto_tools=True)

text = "".join(DELTAS)
ids = tokenizer.encode(text)
whole = Parser(tokenizer).parse(text, request, False, ids)
print("whole:", whole)

parser, said = Parser(tokenizer), []
for number, text in enumerate(DELTAS, 1):
    last = number == len(DELTAS)
    ids = tokenizer.encode(text, add_special_tokens=last)
    said.append(parser.parse_delta(text, ids, request, [], finished=last))
    print(repr(text), "->", said[-1] and said[-1].model_dump(exclude_unset=True))

# It printed:
# whole: (' First I think.\n\n', ' Then I say it.', [])
# 'Here is my thought process:' -> None
# ' First I think.\n\nHer' -> {'content': None, 'reasoning': ' First I think.\n\nHer'}
# 'e ' -> {'content': None, 'reasoning': 'e '}
# 'is my response: Then I say it.' -> {'content': ' Then I say it.', 'reasoning': None}
