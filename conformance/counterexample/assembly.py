# SPDX-License-Identifier: Apache-2.0
"""What the programs of all generations have in common: the heading, imports and the plugin."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from conformance.counterexample import helpers
from conformance.counterexample.excerpts import excerpt
from conformance.counterexample.source import WIDTH, Node, call, flat, laid_out, literal
from conformance.generations import named
from conformance.plugin import registration

_NEEDS = "vLLM, torch and the plugin"


def assembled(
    case: Mapping[str, Any],
    functions: Sequence[str],
    body: str,
    *,
    loads: bool = False,
    needs: str = _NEEDS,
) -> str:
    """Return the source of a program for a case.

    Args:
        case: the case document.
        functions: source of the functions that the body calls.
        body: what the program does, with the class as ``Plugin``.
        loads: whether the body itself loads the class.
        needs: what the program imports, for its reader.

    """
    plugin = _plugin(case, loads=loads)
    needed = helpers.imports("\n".join([plugin, *functions, body]), _quiet(case))
    top = f"{needed}\n{plugin}\n"
    return _heading(case, needs) + "\n" + "\n\n".join([top, *functions, body])


def played(
    case: Mapping[str, Any],
    player: str,
    name: str,
    arguments: Sequence[Node],
    *,
    uses: Iterable[str] = (),
    loads: bool = False,
    needs: str = _NEEDS,
) -> str:
    """Return the source of a program that has a player play a case.

    Args:
        case: the case document.
        player: source of a module; see :mod:`conformance.counterexample.excerpts`.
        name: of its function that plays the case.  It returns what is wrong, or None where it is as
            its docstring says.
        arguments: of that function; the class is ``Plugin``.
        uses: what of the player the arguments use.
        loads: whether the player itself loads the class.
        needs: what the program imports, for its reader.

    """
    plays = laid_out(call(name, *arguments), before="fault = ")
    part = excerpt(player, name, beside=("os", "sys"), uses=uses, text="\n".join(plays))
    top = [part.standard, _quiet(case), part.others, _plugin(case, loads=loads).strip()]
    ending = [
        *plays,
        f'print(f"FAILS: {{fault}}" if fault else f"OK: {{{name}.__doc__}}")',
        "sys.exit(1 if fault else 0)",
    ]
    parts = ["\n\n".join(filter(None, top)), part.code, "\n".join(ending)]
    return _heading(case, needs) + "\n" + "\n\n\n".join(parts) + "\n"


def loading(
    case: Mapping[str, Any],
    player: str,
    new: Node,
    *,
    uses: Iterable[str] = (),
    needs: str = _NEEDS,
) -> str:
    """Return the source of a program that loads a plugin, and says what that does to the process.

    Args:
        case: the case document.
        player: source of a module with :mod:`conformance.counterexample.process_player` in it.
        new: what makes an instance of the class.
        uses: what of the player that uses.
        needs: what the program imports, for its reader.

    """
    named_so = [literal(case["plugin"][key]) for key in ("module", "qualname")]
    arguments = [*named_so, new]
    return played(case, player, "check_loading", arguments, uses=uses, loads=True, needs=needs)


def _quiet(case: Mapping[str, Any]) -> str:
    """Return the lines before vLLM is imported: what it tells, and what it takes for its device."""
    lines = [helpers.QUIET]
    if variables := case["counterexample"].get("variables"):
        lines.append(
            "# As it was found: with what the profile sets, and a build for another device chosen."
        )
        lines += [
            f"os.environ.setdefault({flat(literal(name))}, {flat(literal(value))})"
            for name, value in variables.items()
        ]
    return "\n".join(lines)


def _heading(case: Mapping[str, Any], needs: str) -> str:
    rule = named(case["generation"]).rule(case["rule"])
    trouble = case["counterexample"].get("trouble")
    said = case.get("message") or (trouble["message"] if trouble else None)
    paragraphs = [
        ("Plugin", case["target"]),
        ("Did", said),
        ("Expected", rule.statement),
        ("Check", rule.hint),
    ]
    lines = [f"{rule.id} {rule.title}.", ""]
    for heading, text in paragraphs:
        if text:
            lines += textwrap.wrap(
                " ".join(text.split()),
                WIDTH,
                initial_indent=f"{heading:<10}",
                subsequent_indent=" " * 10,
                break_long_words=False,
                break_on_hyphens=False,
            )
    lines += [
        "",
        f"Needs {needs}. The exit status is 1 while the fault is there, and 0",
        "when it is gone. Written by vllm-conformance.",
    ]
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{text}\n"""\n'


def _plugin(case: Mapping[str, Any], *, loads: bool) -> str:
    plugin = case["plugin"]
    lines = []
    if plugin["root"]:
        lines += ["", f"sys.path.insert(0, {flat(literal(plugin['root']))})"]
    if loads:
        return "\n".join(lines)
    lines.append("")
    if name := plugin.get("known_as"):
        made, found = registration.source(name, plugin["module"], case["target"])
        return "\n".join((*lines, made, f"Plugin = {found}"))
    outer, _, rest = plugin["qualname"].partition(".")
    lines.append(f"from {plugin['module']} import {outer}{'' if rest else ' as Plugin'}")
    if rest:
        lines += ["", f"Plugin = {plugin['qualname']}"]
    return "\n".join(lines)
