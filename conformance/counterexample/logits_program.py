# SPDX-License-Identifier: Apache-2.0
"""The program of a counterexample: a header, the calls one after the other, and the verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from conformance.counterexample import helpers, logits_checks, runner_program, verdicts
from conformance.counterexample.assembly import assembled
from conformance.counterexample.excerpts import excerpt
from conformance.counterexample.source import (
    WIDTH,
    Group,
    Named,
    Node,
    call,
    decoded,
    flat,
    keywords,
    laid_out,
    literal,
)

Call = dict[str, Any]


def program(case: Mapping[str, Any]) -> str:
    """Return the source of a program that shows a failure.

    It imports the standard library, torch, vLLM and the plugin.  It exits with status 1 and says
    what it got and what it expected while the fault is there, and with 0 when it is gone.

    Args:
        case: a case document with calls, with events or with the words of a script; see
            :mod:`conformance.logits_batch.transcript`, :mod:`conformance.logits_slot.journal` and
            :mod:`conformance.logits_slot.scenes`.

    """
    shown = case["counterexample"]
    if "events" in shown:
        return _assembled(case, runner_program.body(shown))
    if shown["expect"]["is"] == "script":
        return logits_checks.program(case)
    writer = _Writer(shown["calls"], bare=shown["bare"])
    writer.write(shown["expect"])
    body = "\n".join(writer.lines).strip("\n") + "\n"
    if any(entry["do"] == "new" for entry in shown["calls"]):
        body = f"CONFIG = engine_config({helpers.MOST}, VOCABULARY)\n\n{body}"
    loads = any(entry["do"] == "load" for entry in shown["calls"])
    return _assembled(case, body, loads=loads)


def _assembled(case: Mapping[str, Any], body: str, *, loads: bool = False) -> str:
    shown = case["counterexample"]
    functions: Sequence[str]
    functions, body = helpers.prepared(shown, body)
    # What is refused, if not as it should be, ends no engine.
    if "request" in shown and shown["expect"]["is"] != "refuses":
        functions, body = _with_request(case, functions, body)
    return assembled(case, functions, body, loads=loads)


def _with_request(
    case: Mapping[str, Any], functions: Sequence[str], body: str
) -> tuple[Sequence[str], str]:
    """Return a program's parts with the request that a client sends, and what serves it."""
    shown = case["counterexample"]
    values = helpers.keywords(decoded(shown["request"]["keywords"]))
    made = laid_out(call("dict", *keywords(values)), 0, "REQUEST = ")
    arguments = "Plugin, REQUEST"
    admitted = "stratum" in shown
    if admitted and (harmed := _harmed(shown)):
        others = helpers.keywords(decoded(harmed))
        made += ["", "# What other clients send, who are harmed.", ""]
        made += laid_out(call("dict", *keywords(others)), 0, "OTHERS = ")
        arguments += ", OTHERS"
    if case["generation"] == "logits/slot":
        arguments += ', runner="V2"'
    served = _ENGINE.format(arguments=arguments) + (_ADMISSION if admitted else "")
    return [*functions, _serve()], "\n".join([*made, "", served, body])


def _harmed(shown: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of the request whose row is wrong, empty where they are the sent."""
    name = shown["trouble"].get("request")
    joined = [one for step in shown["history"] for one in step.get("join", ())]
    choice = next((one["params"] for one in joined if one["name"] == name), None)
    keywords: dict[Any, Mapping[str, Any]] = {
        tuple(each["choice"]): each["keywords"] for each in shown["parameters"]
    }
    return keywords.get(tuple(choice), {}) if choice and choice[0] != "sent" else {}


@cache
def _serve() -> str:
    """Return the source of the function that serves a request in a real engine."""
    source = Path(__file__).with_name("engine_player.py").read_text(encoding="utf-8")
    return f"{excerpt(source, 'serve').code}\n\n"


_ENGINE = """\
# With --engine a real engine serves the request; without, these are the calls that it makes.
if "--engine" in sys.argv:
    serve({arguments})
"""
_ADMISSION = """
try:
    Plugin.validate_params(SamplingParams(**REQUEST))
except Exception as error:
    print(f"OK: the request is refused: {type(error).__name__}: {error}")
    sys.exit(0)
"""


@attrs.define
class _Writer:
    """Writes calls as statements."""

    calls: Sequence[Call]
    bare: bool  #: whether parameters are plain ``SamplingParams``
    lines: list[str] = attrs.field(factory=list)
    _inside: bool = False  #: within ``torch.inference_mode()``
    _margin: int = 0
    _appended: bool = False  #: whether the last call was the engine's, at the end of a step

    def write(self, expect: Mapping[str, Any]) -> None:
        """Write all calls and the verdict."""
        *earlier, last = self.calls
        if expect["is"] == "undrawn":
            self._say(f"state = {verdicts.STATES[expect['generator']]}")
        if expect["is"] == "acts":
            self._say("changes = []")
        if expect["is"] == "masked":
            self._say(verdicts.mask(expect["masked"]))
        for entry in earlier:
            self._prepare(entry)
            if "raised" in entry:
                self._attempt(entry, "with suppress(Exception):")
            else:
                self._state(entry)
        self._prepare(last)
        if expect["is"] in ("raises-nothing", "refuses"):
            self._attempt(last, "try:")
            self._say_all(verdicts.handlers(expect, last))
        elif expect["is"] == "returns":
            self._say_all(verdicts.hanging(last))
            self._state(last)
            self._say("faulthandler.cancel_dump_traceback_later()")
        else:
            self._state(last)
        self._leave()
        self.lines.append("")
        self._say_all(verdicts.ending(expect, self.calls, self._value(expect)))

    def _value(self, expect: Mapping[str, Any]) -> str:
        """Return what the plugin must not have written to, as an expression."""
        if expect["is"] != "kept":
            return ""
        if "value" in expect:
            return flat(literal(expect["value"]))
        made = next(entry for entry in self.calls if entry.get("name") == expect["name"])
        return flat(_statement(made, bare=self.bare)[1])

    def _prepare(self, entry: Call) -> None:
        """Write what stands before a call."""
        if entry["do"] in ("new", "load", "validate"):
            self._leave()
        if entry["do"] in ("update", "apply", "claim"):
            self._enter()
        if "note" in entry:
            self._note(entry)
        elif self._appended and entry["do"] == "update":
            self.lines.append("")  # between two steps of the engine
        self._appended = entry["do"] == "append"
        if entry["do"] == "new":
            self._instance(entry)
        if entry["do"] == "apply":
            self._logits(entry)

    def _attempt(self, entry: Call, opening: str) -> None:
        """Write a call that may raise."""
        self._say(opening)
        self._margin += 4
        self._state(entry)
        self._margin -= 4

    def _note(self, entry: Call) -> None:
        if self.lines and self.lines[-1] and not self.lines[-1].endswith(":"):
            self.lines.append("")
        text = f"Step {entry['step']}: {entry['note']}."
        for line in textwrap.wrap(text, WIDTH - self._margin - 2):
            self._say(f"# {line}")

    def _instance(self, entry: Call) -> None:
        if self.lines:
            self.lines.append("")
        if entry["name"] == "alone":
            self._say("# The same request alone, in an instance of its own.")
        elif entry["name"] == "batch":
            self._say("# The batch, as vLLM's InputBatch told the plugin about it.")

    def _logits(self, entry: Call) -> None:
        """Write down how the logits are made, where that takes more than an expression."""
        entry["given"] = helpers.rows(entry)
        masked = any(isinstance(row, dict) and "masked" in row for row in entry["rows"])
        changed = [
            (index, token, value)
            for index, row in enumerate(entry["rows"])
            if isinstance(row, dict)
            for token, value in row.get("set", ())
        ]
        if changed or masked or entry.get("watched"):
            self._say(f"logits = {entry['given']}")
            for index, token, value in changed:
                self._say(f"logits[{index}, {token}] = {flat(literal(decoded(value)))}")
            if masked:
                self._say("logits[:, MASKED] = -torch.inf")
            entry["given"] = "logits.clone()"

    def _enter(self) -> None:
        if not self._inside:
            self._say("with torch.inference_mode():")
            self._inside, self._margin = True, 4

    def _leave(self) -> None:
        self._inside, self._margin = False, 0

    def _say(self, line: str) -> None:
        self.lines.append(" " * self._margin + line)

    def _say_all(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._say(line)

    def _state(self, entry: Call) -> None:
        before, node = _statement(entry, bare=self.bare)
        self.lines += laid_out(node, self._margin, before)
        if entry.get("watched"):
            self._say("changes.append(not torch.equal(result, logits))")


def _statement(entry: Call, *, bare: bool) -> tuple[str, Node]:
    """Return one call as what stands before it, and the call."""
    before = f"{entry['to']} = " if "to" in entry else ""
    if entry["do"] in ("new", "params", "list"):
        before = f"{entry['name']} = "
    elif entry["do"] == "replace":
        before = f"{entry['name']}[:] = "  # the list that the plugin knows
    elif entry["do"] == "set":
        before = f"{entry['name']}[{entry['index']}] = "
    elif entry["do"] == "load":
        before = "(Plugin,) = "
    if entry["do"] == "params":
        values = helpers.keywords(decoded(entry["keywords"]))
        return before, call("SamplingParams" if bare else "request", *keywords(values))
    return before, _NODES[entry["do"]](entry)


def _new(entry: Call) -> Node:
    most = entry["max_num_seqs"]
    config = "CONFIG" if most == helpers.MOST else f"engine_config({most}, VOCABULARY)"
    return call("Plugin", config, 'torch.device("cpu")', "False")


def _apply(entry: Call) -> Node:
    """Return the call, and what the sampler does to logits that are the plugin's own."""
    applied = call(f"{entry['of']}.apply", entry["given"])
    if "sampled" not in entry or "to" in entry:
        return applied
    return attrs.evolve(applied, closing=").add_(1.0)")


def _append(entry: Call) -> Node:
    values = entry["values"]
    if len(values) == 1:
        return call(f"{entry['name']}.append", literal(values[0]))
    return call(f"{entry['name']}.extend", literal(values))


def _update(update: Mapping[str, Any] | None) -> Node:
    if update is None:
        return "None"
    added = [
        Group("(", [str(row), params, prompt or "None", outputs], ")")
        for row, params, prompt, outputs in update["added"]
    ]
    moved = [
        Group("(", [str(first), str(second), f"MoveDirectionality.{way}"], ")")
        for first, second, way in update["moved"]
    ]
    return call(
        "BatchUpdate",
        f"batch_size={update['batch_size']}",
        Named("removed=", literal(update["removed"])),
        Named("added=", Group("[", added, "]")),
        Named("moved=", Group("[", moved, "]")),
    )


_NODES: Mapping[str, Callable[[Call], Node]] = {
    "new": _new,
    "load": lambda entry: call(
        entry.get("loader", "_load_logitsprocs_by_fqcns"), literal([entry["fqcn"]])
    ),
    "list": lambda entry: literal(entry["value"]),
    "replace": lambda entry: literal(entry["value"]),
    "set": lambda entry: literal(entry["value"]),
    "append": _append,
    "validate": lambda entry: call("Plugin.validate_params", entry["params"]),
    "claim": lambda entry: call(f"{entry['of']}.is_argmax_invariant"),
    "apply": _apply,
    "update": lambda entry: call(f"{entry['of']}.update_state", _update(entry["update"])),
}
