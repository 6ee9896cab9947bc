# SPDX-License-Identifier: Apache-2.0
"""The rules of tool parsers."""

from functools import partial

from conformance.parser.catalogue import common
from conformance.parser.catalogue.common import MADE
from conformance.parser.roles import TOOL
from conformance.rules import SERVED, Rule, Source, sentence

_base, _says = partial(common.method, TOOL), partial(common.binding, TOOL)

RULES = (
    Rule(
        id="TP-01",
        title="The parser can be made for a request",
        statement=(
            "The target imports, derives from ToolParser, has extract_tool_calls, and is made "
            "with (tokenizer, tools), tools being a list or None, and a tool may have no "
            "parameters. Its methods take what vLLM calls them with."
        ),
        evidence=SERVED,
        section="Loading",
        sources=(_says("__init__", "def __init__(self, tokenizer, tools=None)"), MADE),
        hint="Let the constructor take tools as well and hand both on, "
        "super().__init__(tokenizer, tools), and let each method take what vLLM calls it with.",
        resembles=("vllm-project/vllm#38837", "vllm-project/vllm#42065"),
    ),
    common.survives(TOOL),
    Rule(
        id="TP-03",
        title="A whole answer gives the calls that are in it",
        statement=(
            "extract_tool_calls returns each call of the answer with its name and its arguments, "
            "whatever strings these hold, and the text before them as content."
        ),
        evidence=SERVED,
        section="Answers",
        sources=(
            _says(
                "extract_tool_calls", "extracting tool calls from a complete model-generated string"
            ),
        ),
        hint="Strings may hold brackets, quotes and the beginnings of markers: where arguments are "
        "JSON, let a decoder find their end, not a regular expression, and change nothing that it "
        "reads. Content is the text before the first marker.",
    ),
    *common.streaming(TOOL, "content and calls"),
    common.stops(TOOL, "content and calls"),
    Rule(
        id="TP-06",
        title="Text without a call is content, all of it",
        statement=(
            "An answer without a call gives its text as content, once and in order, whole and "
            "streamed, also where it begins like a marker."
        ),
        section="Answers",
        sources=(_base("extract_tool_calls", "content is returned beside the calls"),),
        hint="Where no call has begun, return the text of a delta as it is, white space included: "
        "what returns None sends nothing. What was held back as the beginning of a marker is sent "
        "when it is none.",
    ),
    Rule(
        id="TP-07",
        title="Arguments that were sent are never taken back",
        statement="The pieces of the arguments of a complete call, joined, are JSON.",
        evidence=SERVED,
        section="Streaming",
        sources=(
            _says(
                "get_remaining_unstreamed_args",
                "what was streamed is the beginning of what was parsed",
            ),
        ),
        hint="Send only what cannot change any more: no quote or bracket that closes too early.",
    ),
    Rule(
        id="TP-08",
        title="A call begins once, with its name, id and index",
        statement=(
            "The first delta of a call has its name and an id that no other call has; indices "
            "count from 0; neither name nor id comes again."
        ),
        evidence=SERVED,
        section="Streaming",
        sources=(
            sentence(
                Source(
                    "vllm/entrypoints/generate/base/protocol.py:DeltaToolCall",
                    "index: int says which call a delta is of; id and name are its beginning",
                )
            ),
        ),
        hint="Look where current_tool_id grows, and whether a name can be sent twice.",
    ),
    *common.others(TOOL),
    Rule(
        id="TP-12",
        title="A request keeps what its client says of tools",
        statement=(
            "adjust_request returns the request that it was given, whatever it sets of it; without "
            "tools, and with tool_choice none, no grammar is asked for; tools, tool_choice (none, "
            "auto, required, or a tool's name), parallel_tool_calls, and how the answer is sampled "
            "(temperature, top_p, n, seed, penalties, max_completion_tokens), cache_salt, priority "
            "and vllm_xargs stay what the client sent; its "
            "stop, a string or a list of them, stays, alone or beside others; only where a grammar "
            "is asked for may the choice become auto. A ValueError refuses a choice."
        ),
        evidence=SERVED,
        section="Requests",
        sources=(
            _says("adjust_request", "If there are no tools, return the request as is"),
            Source(
                "vllm/renderers/online_renderer.py:OnlineRenderer.preprocess_chat",
                "an instance made for that adjusts the request; the one that is returned stays "
                "there, and vLLM goes on with the one that it gave",
            ),
        ),
        hint="End with `return request`, and look at request.tools and request.tool_choice first.",
    ),
    Rule(
        id="TP-13",
        title="Arguments have the types that the schema says",
        statement=(
            "Where the model writes a value without its type, the type is that of the tool's "
            "schema: integers, numbers, booleans, null, objects and lists as such, and a string "
            "stays one, with the blanks at its ends, also where it looks like a number, and where "
            "the schema stands behind a $ref. Tools of /v1/responses, which are flat, have their "
            "schemas as well. What is written of NaN, "
            "Infinity or 1e999 is JSON."
        ),
        section="Answers",
        sources=(
            Source(
                "vllm/parser/engine/parser_engine.py:ParserEngine._fix_arg_types",
                "Correct parameter types using the tool schema",
            ),
        ),
        hint="vllm.tool_parsers.utils has coerce_to_schema_type and find_tool_properties, which "
        "follow no $ref: look in $defs first, where Pydantic writes what is a class of its own.",
        resembles=("vllm-project/vllm#46924",),
    ),
    common.together(TOOL),
    Rule(
        id="TP-15",
        title="Each tool_choice gives the calls that are in the answer",
        statement=(
            "An answer to a request with tool_choice required, or a tool's name, gives its calls: "
            "in JSON, where adjust_request asks for that grammar, else in the model's own format. "
            "With parallel_tool_calls off it gives all calls, or the first."
        ),
        evidence=SERVED,
        section="Requests",
        sources=(
            _says(
                "supports_required_and_named",
                "When False, the serving layer falls back to the tool_parser's "
                "extract_tool_calls / extract_tool_calls_streaming methods for required/named "
                'tool_choice, treating them the same as "auto"',
            ),
            Source(
                "vllm/entrypoints/serve/utils/tool_calls_utils.py:maybe_filter_parallel_tool_calls",
                "Filter to first tool call only when parallel_tool_calls is explicitly False",
            ),
        ),
        hint="Call super().adjust_request, or set supports_required_and_named to False.",
    ),
    common.cost(TOOL),
    common.forgets(TOOL),
    common.leaves_others_alone(TOOL),
    Rule(
        id="TP-18",
        title="Ids of calls are new in every turn",
        statement=(
            "The calls of an answer have ids that no call of the conversation has had, unless the "
            "model writes them, also where the ids of its requests begin alike, as clients and "
            "/v1/responses give them."
        ),
        section="Answers",
        sources=(
            Source(
                "vllm/entrypoints/generate/base/protocol.py:ToolCall",
                "id: str = Field(default_factory=make_tool_call_id), which makes a random one",
            ),
        ),
        hint="Leave the id of a ToolCall out, and use make_tool_call_id or a uuid in deltas; not "
        "the index.",
    ),
    Rule(
        id="TP-21",
        title="The schema of a tool may be any that JSON Schema has",
        statement=(
            "An answer raises nothing, whatever schemas the tools of its request have: references, "
            "also to themselves, true, no type or several, enumerations, and no properties at all."
        ),
        section="Requests",
        sources=(
            Source(
                "vllm/entrypoints/generate/base/protocol.py:FunctionDefinition",
                "parameters: dict[str, Any] | None, of which vLLM checks nothing",
            ),
        ),
        hint="A schema may be true, which is no object, and its type a list or missing: ask "
        "isinstance before .get, and follow a $ref once, or not at all.",
    ),
)
