"""reasoning-parser:mistral, RP-18: Reasoning that is broken off is the same streamed as whole."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = ["[THINK]I say thex <"]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens(["[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]"])
request = ChatCompletionRequest(messages=[])
Parser = ParserManager.get_parser(reasoning_parser_name="mistral", enable_auto_tools=True)

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
# whole: ('I say thex <', None, [])
# '[THINK]I say thex <' -> {'reasoning': 'I say thex<'}
