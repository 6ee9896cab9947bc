# SPDX-License-Identifier: Apache-2.0
"""The rules of reasoning parsers."""

from functools import partial

from conformance.parser.catalogue import common
from conformance.parser.catalogue.common import MADE, parse_delta
from conformance.parser.roles import REASONING
from conformance.rules import SERVED, Rule, Source, ends, sentence

_base, _says = partial(common.method, REASONING), partial(common.binding, REASONING)

_AGREE = sentence(
    Source(
        "vllm/reasoning/AGENTS.md",
        "The structured-output gate and the frontend's extraction must agree on where reasoning "
        "ends",
    )
)

RULES = (
    Rule(
        id="RP-01",
        title="The parser can be made for a request",
        statement=(
            "The target imports, derives from ReasoningParser, has extract_reasoning, and is made "
            "with a tokenizer, which the engine gives by its name, with keywords of whatever name "
            "or without any. Its methods take what vLLM calls them with."
        ),
        evidence=SERVED,
        section="Loading",
        sources=(
            _says("__init__", "def __init__(self, tokenizer, *args, **kwargs)"),
            _base("extract_reasoning", "@abstractmethod"),
            MADE,
            Source(
                "vllm/v1/structured_output/__init__.py:StructuredOutputManager._get_reasoner",
                "reasoner_cls(tokenizer=..., **kwargs)",
            ),
            Source(
                "vllm/config/reasoning.py:ReasoningConfig.initialize_token_ids",
                "parser_cls(tokenizer): a server that starts asks for the markers",
            ),
        ),
        hint="Name methods as ReasoningParser of the installed vLLM does, and take what it gives "
        "them. In __init__ take **kwargs and hand them on: super().__init__(tokenizer, *args, "
        "**kwargs).",
    ),
    common.survives(REASONING),
    Rule(
        id="RP-03",
        title="A whole answer is parted into reasoning and content",
        statement=(
            "extract_reasoning returns the reasoning and the content of the answer, without the "
            "markers between them, also for requests of /v1/responses."
        ),
        evidence=SERVED,
        section="Answers",
        sources=(
            _says("extract_reasoning", "A tuple containing the reasoning content and the content"),
            _base("adjust_request", "request: ChatCompletionRequest | ResponsesRequest"),
        ),
        hint="Partition at the first end marker; what follows is content, whatever it holds. "
        "Where markers are special tokens, set skip_special_tokens = False of both requests.",
    ),
    *common.streaming(REASONING, "reasoning and content"),
    common.stops(REASONING, "reasoning and content"),
    Rule(
        id="RP-06",
        title="Both say that reasoning ends at the same token",
        statement=(
            "is_reasoning_end_streaming is first true for the delta with the token from which on "
            "is_reasoning_end is true, whether or not it was asked of these tokens before, or of "
            "drafts that were rejected. Neither raises, and is_reasoning_end returns a bool, which "
            "is sent to the engine."
        ),
        section="The end of reasoning",
        sources=(
            _says(
                "is_reasoning_end_streaming",
                "True if the reasoning content ends in the `delta_ids` on a decode step",
            ),
            Source(
                "vllm/v1/structured_output/__init__.py:StructuredOutputManager."
                "_get_constraint_bounds",
                "validate_tokens, grammar_bitmask and accept_tokens ask of the same drafts, of "
                "which any may be rejected",
            ),
            Source(
                "vllm/v1/engine/__init__.py:EngineCoreRequest",
                "reasoning_ended: bool | None, what is_reasoning_end says of the prompt",
            ),
        ),
        hint="The twin sees the last tokens alone: a marker of several may have begun before, in "
        "input_ids. Keep nothing of one question for the next.",
    ),
    Rule(
        id="RP-23",
        title="The end of reasoning can be asked of every prompt",
        statement=(
            "is_reasoning_end neither raises nor takes seconds, whatever prompt a client sends: "
            "one without tokens, with tokens that only the model knows, with markers in any order, "
            "or with 32,000 tokens. Nor does is_reasoning_end_streaming raise behind it, which is "
            "given a sequence that is no list. Both hold for an instance made without keywords."
        ),
        section="The end of reasoning",
        sources=(
            ends(
                Source(
                    "vllm/v1/structured_output/__init__.py:StructuredOutputManager."
                    "_get_constraint_bounds",
                    "reasoner.is_reasoning_end(request.prompt_token_ids or []), in a step of the "
                    "engine, for requests of /v1/completions",
                )
            ),
            Source(
                "vllm/v1/structured_output/__init__.py:StructuredOutputManager.accept_tokens",
                "reasoner.is_reasoning_end_streaming(request.all_token_ids, ...), a ConstantList",
            ),
            Source(
                "vllm/entrypoints/openai/chat_completion/protocol.py:ChatCompletionRequest."
                "resolve_reasoning_ended",
                "parser.is_reasoning_end(prompt_token_ids), in the event loop",
            ),
        ),
        hint="Look for the markers where they may be missing: test with `in` before .index, and "
        "compare the last places of both. A client of /v1/completions writes the whole prompt.",
    ),
    Rule(
        id="RP-07",
        title="Content begins where the grammar begins",
        statement=(
            "The client's content begins no earlier than is_reasoning_end says, and no reasoning "
            "comes after it."
        ),
        section="The end of reasoning",
        sources=(
            _AGREE,
            _base("is_reasoning_end", "used in structured engines to check if reasoning ends"),
        ),
        hint="Give both methods the same answer, and look for the marker that only one knows.",
        resembles=("vllm-project/vllm#39138",),
    ),
    Rule(
        id="RP-08",
        title="The tokens of the content are those behind the reasoning",
        statement=(
            "extract_content_ids returns the tokens of the content of the answer, and none of its "
            "reasoning."
        ),
        section="The end of reasoning",
        sources=(_says("extract_content_ids", "Extract content token ids from the input_ids"),),
        hint="Return the tokens behind the first end marker, not behind the last: none at all only "
        "where nothing follows it.",
    ),
    Rule(
        id="RP-15",
        title="The tokens of the reasoning are counted",
        statement=(
            "A count_reasoning_tokens of the parser's own returns how many tokens of the answer "
            "are reasoning, with the markers around it or without."
        ),
        section="The end of reasoning",
        sources=(
            _base("count_reasoning_tokens", "Number of tokens that belong to reasoning content"),
        ),
        hint="Count up to the first end marker, and all tokens where none comes: the start marker "
        "may stand in the prompt, and is not among the tokens then. Only a SHOULD: the number is "
        "told to the client whose answer it is.",
    ),
    Rule(
        id="RP-16",
        title="An earlier turn ends no reasoning of this one",
        statement=(
            "Behind a prompt that holds an earlier turn with its reasoning, and in which reasoning "
            "has begun anew, an answer is streamed as behind one without, and both methods say "
            "that reasoning ends at the same token."
        ),
        section="The end of reasoning",
        sources=(
            _AGREE,
            parse_delta(
                "is_reasoning_end(prompt_token_ids): nothing is reasoning of an answer where it is "
                "true; StructuredOutputManager asks the same before the first token"
            ),
            Source(
                "vllm/reasoning/kimi_k3_reasoning_parser.py:KimiK3ReasoningParser.is_reasoning_end",
                'A plain "a close marker exists anywhere" check false-positives in multi-turn / '
                "agent continuations, where the chat template keeps a prior turn's think channel",
            ),
        ),
        hint="Look from the end of the tokens: what counts is whether the last marker is an end.",
        resembles=("vllm-project/vllm#27703", "vllm-project/vllm#32490", "vllm-project/vllm#39885"),
    ),
    Rule(
        id="RP-17",
        title="Markers where they mean nothing, or in part, are the same streamed as whole",
        statement=(
            "An answer whose content has the markers of reasoning again, or whose reasoning has "
            "one of calls, as one about them has, or lacks the label behind its first token, says "
            "the same streamed token by token as whole."
        ),
        section="The end of reasoning",
        sources=(
            parse_delta(
                "a reasoning parser that has said that reasoning ended is not asked again: what "
                "comes then is content"
            ),
        ),
        hint="Streamed, all that comes behind the first end is content, as it is. In "
        "extract_reasoning, too: part at the first end, not at the last, and leave the markers "
        "behind it where they are. A marker of calls within reasoning ends it in both ways, or in "
        "neither. Only a SHOULD: what a marker means there is for the model to say.",
    ),
    Rule(
        id="RP-18",
        title="Reasoning that is broken off is the same streamed as whole",
        statement=(
            "An answer that ends within its reasoning, as max_tokens ends it, says the same "
            "streamed token by token as whole."
        ),
        section="The end of reasoning",
        sources=(
            _base("extract_reasoning_streaming", "extracting ... from an incomplete response"),
            Source(
                "SamplingParams.max_tokens",
                "the answer is over, and no end of its reasoning was said",
            ),
        ),
        hint="An answer without the end of its reasoning is reasoning, where it has begun: "
        "in extract_reasoning, too. "
        "Only a SHOULD: whether it has begun may be said by the prompt alone.",
        resembles=("vllm-project/vllm#35221",),
    ),
    Rule(
        id="RP-20",
        title="An answer without reasoning is the same streamed as whole",
        statement=(
            "Where extract_reasoning takes an answer without markers for content, streamed it is "
            "content too, and its calls are found, those of the partner that the profile names or "
            "of Hermes."
        ),
        section="The end of reasoning",
        sources=(
            parse_delta(
                "calls are looked for where is_reasoning_end, or its streaming twin, has been true"
            ),
        ),
        hint="Let is_reasoning_end_streaming be true where the answer begins without reasoning. "
        "Only a SHOULD: a model may always think.",
        resembles=("tenstorrent/vllm#480",),
    ),
    Rule(
        id="RP-22",
        title="The markers that the class names part its answers",
        statement=(
            "Where reasoning_start_str and reasoning_end_str say the markers, what stands between "
            "these two in an answer is its reasoning."
        ),
        section="The end of reasoning",
        sources=(
            _base("reasoning_end_str", "the strings that delimit the reasoning block"),
            Source(
                "vllm/config/reasoning.py:ReasoningConfig.initialize_token_ids",
                "budgets of reasoning are counted from one to the other, by their tokens",
            ),
        ),
        hint="Let both be properties that return what the parser looks for: in a subclass with "
        "other markers, too. Only a SHOULD: vLLM goes by them for thinking_token_budget alone, and "
        "its options can name others.",
    ),
    Rule(
        id="RP-24",
        title="A request keeps what its client says",
        statement=(
            "adjust_request returns the request that it was given, whatever it sets of it: how the "
            "answer is sampled (temperature, top_p, n, seed, penalties), how long it is, what "
            "biases it, its stop string, cache_salt, priority and vllm_xargs stay what the client "
            "sent."
        ),
        section="Requests",
        sources=(
            _base("adjust_request", "Adjust request parameters; override in subclasses as needed"),
            Source(
                "vllm/renderers/online_renderer.py:OnlineRenderer.preprocess_chat",
                "an instance made for that adjusts the request; vLLM goes on with the one that it "
                "gave",
            ),
        ),
        hint="Set what the parser needs, such as skip_special_tokens, and nothing else. "
        "Only a SHOULD: vLLM does not say what may be adjusted.",
    ),
    *common.others(REASONING),
    common.together(REASONING),
    common.cost(REASONING),
    common.forgets(REASONING),
    common.leaves_others_alone(REASONING),
)
