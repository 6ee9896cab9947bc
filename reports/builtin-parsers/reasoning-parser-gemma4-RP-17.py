"""reasoning-parser:gemma4, RP-17: Markers where they mean nothing, or in part, are the same streamed as whole."""

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

DELTAS = [
    "<|channel>thought\nFirst I think.<channel|>",
    "Then I say it.<|channel>thought\nI think again.<channel|>I say more.",
]
CHAT = {"enable_thinking": True}
tokenizer = ByT5Tokenizer()
tokenizer.add_tokens([
    "<|channel>",
    "<channel|>",
    "<|tool_call>",
    "<tool_call|>",
    '<|"|>',
    "<|turn>",
    "<|tool_response>",
])
request = ChatCompletionRequest(messages=[])
Parser = ParserManager.get_parser(reasoning_parser_name="gemma4", enable_auto_tools=True)

text = "".join(DELTAS)
ids = tokenizer.encode(text)
whole = Parser(tokenizer, chat_template_kwargs=CHAT).parse(text, request, False, ids)
print("whole:", whole)

parser, said = Parser(tokenizer, chat_template_kwargs=CHAT), []
for number, text in enumerate(DELTAS, 1):
    last = number == len(DELTAS)
    ids = tokenizer.encode(text, add_special_tokens=last)
    said.append(parser.parse_delta(text, ids, request, tokenizer.encode('<|turn>model\n'), finished=last))
    print(repr(text), "->", said[-1] and said[-1].model_dump(exclude_unset=True))

# It printed:
# whole: ('First I think.thought\nI think again.', 'Then I say it.I say more.', [])
# '<|channel>thought\nFirst I think.<channel|>' -> {'reasoning': 'First I think.'}
# 'Then I say it.<|channel>thought\nI think again.<channel|>I say more.' -> {'content': 'Then I say it.<|channel>thought\nI think again.<channel|>I say more.'}
