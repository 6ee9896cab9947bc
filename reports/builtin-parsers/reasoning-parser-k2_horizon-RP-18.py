"""reasoning-parser:k2_horizon, RP-18: Reasoning that is broken off is the same streamed as whole."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = ["<ifm|think>F"]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens([
    "<ifm|think>",
    "</ifm|think>",
    "<ifm|think_fast>",
    "</ifm|think_fast>",
    "<ifm|think_faster>",
    "</ifm|think_faster>",
    "<ifm|tool_calls>",
])
request = ChatCompletionRequest(messages=[])
Parser = ParserManager.get_parser(reasoning_parser_name="k2_horizon", enable_auto_tools=True)

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
# whole: ('', 'F', [])
# '<ifm|think>F' -> {'reasoning': 'F'}
