"""reasoning-parser:inkling, RP-17: Markers where they mean nothing, or in part, are the same streamed as whole."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "<|message_model|><|content_thinking|>First I think.<|end_message|><|message_model|><|content_text|>",
    "Then I say it.<|message_model|><|content_thinking|>I think again.<|end_message|><|message_model|><|content_text|>I say more.",
]
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens([
    "<|message_model|>",
    "<|content_text|>",
    "<|content_thinking|>",
    "<|content_invoke_tool_json|>",
    "<|content_invoke_tool_text|>",
    "<|content_tool_error|>",
    "<|content_model_end_sampling|>",
    "<|end_message|>",
])
request = ChatCompletionRequest(messages=[])
Parser = ParserManager.get_parser(reasoning_parser_name="inkling", enable_auto_tools=True)

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
# whole: ('First I think.I think again.', 'Then I say it.I say more.', [])
# '<|message_model|><|content_thinking|>First I think.<|end_message|><|message_model|><|content_text|>' -> {'reasoning': 'First I think.'}
# 'Then I say it.<|message_model|><|content_thinking|>I think again.<|end_message|><|message_model|><|content_text|>I say more.' -> {'content': 'Then I say it.<|message_model|><|content_thinking|>I think again.<|end_message|><|message_model|><|content_text|>I say more.'}
