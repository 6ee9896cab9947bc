"""reasoning-parser:muse_glimmer, RP-17: Markers where they mean nothing, or in part, are the same streamed as whole."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    " to=self<|message|>First I think.<|eom|><|start|>assistant to=user<|message|>Then I say it.<|eot|> to=self<|message|>I think again.<|eom|><|start|>assistant to=user<|message|>I say more.<|eot|>",
]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["<|start|>", "<|message|>", "<|eom|>", "<|eot|>"])
request = ChatCompletionRequest(messages=[])
Parser = ParserManager.get_parser(reasoning_parser_name="muse_glimmer", enable_auto_tools=True)

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
# whole: ('First I think.\nI think again.', 'Then I say it.', [])
# ' to=self<|message|>First I think.<|eom|><|start|>assistant to=user<|message|>Then I say it.<|eot|> to=self<|message|>I think again.<|eom|><|start|>assistant to=user<|message|>I say more.<|eot|>' -> {'content': 'Then I say it.I say more.', 'reasoning': 'First I think.I think again.'}
