"""reasoning-parser:granite_thinking_parser, RP-17: Markers where they mean nothing, or in part, are the same streamed as whole."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = ["<think>First I think.</think>T", "hen I say it.<think>I think again.</think>I say more."]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<think>", "</think>"])
request = ChatCompletionRequest(messages=[])
Parser = ParserManager.get_parser(reasoning_parser_name="granite_thinking_parser", enable_auto_tools=True)

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
# whole: ('First I think.', 'Then I say it.<think>I think again.I say more.', [])
# '<think>First I think.</think>T' -> {'content': 'T', 'reasoning': 'First I think.'}
# 'hen I say it.<think>I think again.</think>I say more.' -> {'content': 'hen I say it.<think>I think again.</think>I say more.'}
