# SPDX-License-Identifier: Apache-2.0
"""Short programs that show what was found of vLLM's own parsers, and need vLLM alone.

The program beside a counterexample tells by itself whether the fault is there, of any plugin.
These are to be read: one gives a parser the deltas, and prints what it makes of them.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from conformance.counterexample.source import laid_out, literal
from conformance.generations import named
from conformance.parser.player import joined, message

if TYPE_CHECKING:
    from collections.abc import Mapping

TOP = """\
{docstring}

from transformers import ByT5Tokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
{imports}from vllm.parser.parser_manager import ParserManager

{given}
tokenizer = ByT5Tokenizer(){special}
request = ChatCompletionRequest(messages=[]{tools})
Parser = ParserManager.get_parser({role}_parser_name="{name}", enable_auto_tools=True)
"""

WHOLE = """
text = "".join(DELTAS)
ids = tokenizer.encode(text)
whole = Parser({made}).parse(text, request, {calls}, ids)
print("whole:", whole)
"""

STREAMED = """
parser, said = Parser({made}), []
for number, text in enumerate(DELTAS, 1):
    last = number == len(DELTAS)
    ids = tokenizer.encode(text, add_special_tokens=last)
    said.append(parser.parse_delta(text, ids, request, {prompt}, finished=last))
    print(repr(text), "->", said[-1] and said[-1].model_dump(exclude_unset=True))
"""

#: The same twice, the second time as vLLM's detokenizer holds letters back for a stop string.
STOPPED = """
def streamed(held):
    parser, said, rest = Parser({made}), [], ""
    for number, each in enumerate(DELTAS, 1):
        last = number == len(DELTAS)
        ids = tokenizer.encode(each, add_special_tokens=last)
        rest += each
        ready = len(rest) if last else max(0, len(rest) - held)
        said.append(parser.parse_delta(rest[:ready], ids, request, {prompt}, finished=last))
        print(repr(rest[:ready]), "->", said[-1] and said[-1].model_dump(exclude_unset=True))
        rest = rest[ready:]
    return said

free = streamed(0)
print("and with a stop string, for which {held} letters are held back, but not their tokens:")
said = streamed({held})
"""

READS = """
text = "".join(DELTAS)
ids, raised = tokenizer.encode(text), None
try:
    Parser({made}).parse(text, request, {calls}, ids)
except Exception as error:
    raised = f"{{type(error).__name__}}: {{error}}"
print("raised", raised)
"""

GOES_ON = """
parser, last, raised = Parser({made}), len(DELTAS), None
try:
    for number, text in enumerate(DELTAS, 1):
        ids = tokenizer.encode(text, add_special_tokens=number == last)
        parser.parse_delta(text, ids, request, {prompt}, finished=number == last)
except Exception as error:
    raised = f"{{type(error).__name__}}: {{error}}"
print("raised", raised)
"""

#: A request of the other API, whose tools are flat.
RESPONSES = """
text, said = "".join(DELTAS), []
ids = tokenizer.encode(text)
flat = [{{"type": "function", **tool["function"]}} for tool in TOOLS]
for asked in (request, ResponsesRequest(input="x", tools=flat)):
    try:
        said.append(Parser({asked}).parse(text, asked, {calls}, ids))
    except Exception as error:
        said.append(f"raised {{type(error).__name__}}: {{error}}")
    print(f"{{type(asked).__name__}}:", said[-1])
"""

IMPORTS = {"responses": "from vllm.entrypoints.openai.responses.protocol import ResponsesRequest\n"}

#: Parts of a program, by what its case is.
PARTS = {
    "reads": (READS,),
    "goes_on": (GOES_ON,),
    "responses": (RESPONSES,),
    "streamed": (WHOLE, STREAMED),
    "whole": (WHOLE,),
    "keeps": (WHOLE,),
    "deltas": (STREAMED,),
    "stops": (STOPPED,),
}

#: Ids of calls are drawn.
_ID = re.compile(r"(?<=['\"])(chatcmpl-tool-|call_|functions\.)[\w.:-]*(?=['\"])")

#: What vLLM draws anew for the id of each call.
_DRAWN = re.compile(r"(?<=[-_])[0-9a-f]{16}(?=['\"])")

#: The same character so often that a program rather says how often.
_RUN = re.compile(r"(.)\1{199,}")

PRINTED = "\n# It printed:\n"


def short(case: Mapping[str, Any]) -> str | None:
    """Return the program of a case with what it printed, or None where it does not show the fault.

    Args:
        case: a case document whose counterexample has a ``program``.

    """
    scene = case["counterexample"]["program"]
    parts = PARTS.get(scene["is"])
    if parts is None:
        return None
    # Where calls differ or are lost, it is no matter which types arguments have.
    untyped = scene["is"] in ("streamed", "keeps", "stops", "responses")
    for typed in (False, True) if untyped else (True,):
        source = _source(case, scene, parts, typed=typed)
        printed, left = _run(source)
        if _shown(scene, left):
            lines = _DRAWN.sub("...", printed).splitlines()
            return source + PRINTED + "".join(f"# {line}\n" for line in lines)
    return None


def told(output: str) -> str:
    """Return what a program printed without the ids of calls, which are others each time."""
    return _ID.sub("ID", output)


def _source(
    case: Mapping[str, Any], scene: Mapping[str, Any], parts: tuple[str, ...], *, typed: bool
) -> str:
    """Return a program; where it does not matter, its tools have no types of arguments."""
    rule = named(case["generation"]).rule(case["rule"])
    says = f"\n\nIt says {_words(scene['says'])}.\n" if "says" in scene else ""
    docstring = f"{case['target']}, {rule.id}: {rule.title}.{says}"
    text = "".join(scene["deltas"])
    tools = [_tool(tool, text if typed else "") for tool in scene["tools"]]
    given = list(map(_counted, laid_out(literal(scene["deltas"]), before="DELTAS = ")))
    if tools:
        given += laid_out(literal(tools), before="TOOLS = ")
    made = "tokenizer, request.tools" if tools else "tokenizer"
    if scene["chat"]:
        given += laid_out(literal(scene["chat"]), before="CHAT = ")
        made += ", chat_template_kwargs=CHAT"
    plain = scene["prompt"] == "user: x"
    special = laid_out(literal(scene["special"]), before="\ntokenizer.add_tokens(", after=")")
    return "".join((TOP, *parts)).format(
        docstring='"""' + docstring.replace("\\", "\\\\") + '"""',
        imports=IMPORTS.get(scene["is"], ""),
        asked=made.replace("request.", "asked."),
        given="\n".join(given),
        special="\n".join(special) if scene["special"] else "",
        tools=", tools=TOOLS" if tools else "",
        role=scene["role"],
        name=scene["name"],
        made=made,
        calls=bool(tools),
        held=scene.get("held", 0),
        prompt="[]" if plain else f"tokenizer.encode({scene['prompt']!r})",
    )


def _counted(line: str) -> str:
    """Return a line with a text, in which long runs of a character are counted."""
    if not _RUN.search(line):
        return line
    quote = line.strip()[0]
    found = _RUN.sub(
        lambda run: f"{quote} + {quote}{run[1]}{quote} * {len(run[0])} + {quote}", line
    )
    return found.replace(f"{quote}{quote} + ", "").replace(f" + {quote}{quote}", "")


def _words(says: list[Any]) -> str:
    reasoning, content, calls = says
    parts = [f"reasoning {reasoning!r}"] if reasoning else []
    parts += [f"content {content!r}"] if content else []
    return " and ".join([*parts, *(f"{name}({arguments})" for name, arguments in calls)])


def _tool(tool: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return a tool with those of its properties that are in a text."""
    function = dict(tool["function"])
    schema = function.pop("parameters", {})
    kept = {key: value for key, value in schema.get("properties", {}).items() if key in text}
    if kept:
        function["parameters"] = {**schema, "properties": kept}
    return {"type": "function", "function": function}


def _run(source: str) -> tuple[str, dict[str, Any]]:
    """Execute a program here, and return what it printed, and its variables."""
    left: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(source, "program.py", "exec"), left)  # noqa: S102 - a program of ours
    return printed.getvalue(), left


def _shown(scene: Mapping[str, Any], left: Mapping[str, Any]) -> bool:
    """Tell whether a program that was executed shows the fault."""
    if scene["is"] in ("reads", "goes_on"):
        return left["raised"] is not None
    if scene["is"] == "responses":
        chat, responses = left["said"]
        return isinstance(responses, str) or _message(*chat) != _message(*responses)
    whole = left.get("whole")
    made = None
    if whole is not None:
        made = _message(*whole)
    streamed = joined([each for each in left.get("said", ()) if each])
    if scene["is"] == "streamed":
        return streamed != made
    if scene["is"] == "stops":
        return streamed != joined([each for each in left["free"] if each])
    expected = message(*scene["says"])
    if scene["is"] == "keeps":
        assert made is not None
        return bool(made[2][: len(expected[2])] != expected[2])
    return (made if scene["is"] == "whole" else streamed) != expected


def _message(reasoning: str | None, content: str | None, calls: Any) -> tuple[Any, ...]:  # noqa: ANN401 - vLLM's
    """Return what a client has of a whole answer."""
    return message(reasoning, content, [(each.name, each.arguments) for each in calls or ()])
