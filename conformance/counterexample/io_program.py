# SPDX-License-Identifier: Apache-2.0
"""The program of an IO processor's counterexample: requests, what happens to them, the verdict."""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING, Any

from conformance.counterexample import io_host
from conformance.counterexample.assembly import assembled
from conformance.counterexample.io_scripts import OFFLINE, SCRIPTS
from conformance.counterexample.source import (
    Group,
    Named,
    block,
    decoded,
    laid_out,
    literal,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from conformance.counterexample.source import Node

#: A text or a list that is one thing again and again, so many times, is written as a product.
_REPEATED = 20

#: What a request of a history goes through, where its hooks are not awaited.
_PLAIN = '''\
plugin, outputs, got = $new, {}, {}


def arrive(name: str) -> None:
    """Begin with a request, up to where it waits for its outputs."""
    data, request_id = REQUESTS[name]
    outputs[name] = begin(plugin, $copied(data), request_id)


def complete(name: str) -> None:
    """Finish a request whose outputs are there, or which was refused."""
    got[name] = finish(plugin, outputs[name], REQUESTS[name][1])


'''

_COMPARED = """\

for name in got:
    if what := apart(got[name], $alone):
        print(f"FAILS: request {name} did not get what it gets alone")
        print(f"  {what}")
        sys.exit(1)
print("OK: every request got what it gets alone")
"""

_LEAVING = """\
    await server.leave("$name")
    got = server.got("$name")
    await server.deliver("$name", $next)
    return "another output" if server.ready["$name"].empty() else got


got = asyncio.run(main())
if got != "the end of its request":
    print(f"FAILS: the client of $name disconnected, and its request got {got!r:.200}")
    print("expected: the request ends, whatever it waits for")
    sys.exit(1)
print("OK: the request ended when its client disconnected")
"""


def program(case: Mapping[str, Any]) -> str:
    """Return the source of a program that shows a failure."""
    return assembled(case, *_parts(case))


def _parts(case: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return the functions of a program, and its statements.

    Args:
        case: a case document whose counterexample has a ``program``; see
            :mod:`conformance.io_processor.demonstrations`.

    """
    shown, generation = case["counterexample"]["program"], case["generation"]
    hidden = shown.get("hidden", [])
    filling = io_host.words(
        generation,
        offline=shown["is"] in OFFLINE or not shown.get("id", True),
        hiding=bool(hidden),
        reusing=shown.get("reusing", False),
    )
    if shown["is"] == "history":
        text = _history(shown)
    else:
        lines = [line for name in ("DATA", "OTHER") for line in _data(shown, name)]
        script = SCRIPTS[shown["is"]]
        # Two empty lines before a function.
        between = [""] if lines and script.startswith(("def", "async", "class")) else []
        text = "\n".join([*lines, *between, script])
    body = Template(text).substitute(filling | _filled(shown))
    found = io_host.functions(body, generation, filling)
    constants = []
    if hidden:
        constants.append(
            "# What differs from one time to the next anyway.\n"
            + "\n".join(laid_out(Group("{", [literal(p) for p in hidden], "}"), before="HIDDEN = "))
            + "\n"
        )
    if any("CONFIG" in part for part in [*found, body]):
        constants.append(
            "# The folder of a pooling model; any other will do that suits the plugin.\n"
            f"MODEL = {literal(shown['model'])}\n"
        )
    return [*constants, *found], body


def _data(shown: Mapping[str, Any], name: str) -> list[str]:
    """Return the statement that says what a request carries."""
    if name.lower() not in shown:
        return []
    return [*_escaped(laid_out(_node(decoded(shown[name.lower()])), before=f"{name} = ")), ""]


def _escaped(lines: Iterable[str]) -> list[str]:
    """Return lines that a template leaves as they are."""
    return [line.replace("$", "$$") for line in lines]


def _filled(shown: Mapping[str, Any]) -> dict[str, str]:
    """Return the words of a script that its counterexample chooses."""
    has_id = shown.get("id", True)
    found = {
        "request_id": '"id-0"' if has_id else "None",
        "where": "" if has_id else ", offline, without a request id",
        "hook": shown.get("hook", ""),
        "forms": "\n".join(laid_out(literal(_forms(shown.get("hook", ""))), before="FORMS = ")),
        "place": str(shown.get("place", 0)),
        "asked": "".join(laid_out(literal(shown.get("asked", {})))),
        "changing": "",
        "how": ", but for its outputs",
        "finish": "",
        "first": "served(plugin, OTHER, None)",
    }
    if shown.get("failing"):
        found["first"] = "begin(plugin, copy.deepcopy(OTHER), None)  # the engine fails this one"
    if shown.get("answered"):
        found["how"] = ""
        found["finish"] = "\n    plugin.post_process(outputs, request_id=request_id)"
    if "changed" in shown:
        where = "".join(f"[{literal(part)}]" for part in shown["changed"])
        found["changing"] = f'\n    data{where} += f" {{number}}"'
    if shown["is"] == "held":
        worked = shown["what"] == "worked"
        found |= {"what": shown["what"], "which": str(int(worked)), "limit": str(shown["limit"])}
        found["serve"] = (
            'await alone(plugin, DATA, "id-0")'
            if shown["awaited"]
            else 'outputs = begin(plugin, copy.deepcopy(DATA), "id-0")\n'
            '    await asyncio.to_thread(finish, plugin, outputs, "id-0")'
        )
    return found


def _forms(hook: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return the arguments and keywords that hosts call a hook with."""
    if hook.startswith("pre_process"):
        return [((), {"prompt": "a prompt", "request_id": "id"}), ((), {"prompt": "a prompt"})]
    if hook == "post_process":
        return [(([],), {"request_id": "id"}), (([],), {})]
    if hook == "post_process_async":
        return [(([],), {"request_id": "id"}), ((), {"model_output": [], "request_id": "id"})]
    return [(({},), {})] if hook.startswith("parse") else [((), {}), ((None,), {})]


def _history(shown: Mapping[str, Any]) -> str:
    """Return what happens to the requests, and the comparison of each with itself alone."""
    entries: list[Node] = [
        Named(
            f"{literal(each['name'])}: ",
            Group("(", [_node(decoded(each["data"])), literal(each["id"])], ")"),
        )
        for each in shown["requests"]
    ]
    lines = _escaped(laid_out(Group("{", entries, "}"), before="REQUESTS = "))
    if shown["awaited"]:
        return "\n".join([*lines, "", "", *_awaited(shown)])
    moves = [_plain(*event) for event in shown["events"]]
    ending = Template(_COMPARED).safe_substitute(alone="served($new, *REQUESTS[name])")
    return "\n".join([*lines, _PLAIN + "\n".join(moves), ending])


def _plain(what: str, name: str, *_: Any) -> str:  # noqa: ANN401 - the number of an output
    if what == "fail":
        return f"# The engine fails {name}."
    if what == "leave":
        return f"# The client of {name} disconnects."
    return f'{what}("{name}")'


def _awaited(shown: Mapping[str, Any]) -> list[str]:
    """Return what happens to requests whose hooks are awaited."""
    leaving: str | None = shown.get("leaving")
    said = "return what their clients get" if leaving is None else "one client disconnects"
    lines = [
        f"async def main(){' -> dict' if leaving is None else ''}:",
        f'    """Let requests and their outputs arrive; {said}."""',
        "    server = Server()",
    ]
    moves = []
    for what, name, *numbers in shown["events"]:
        if what == "fail":
            moves.append(f'await server.deliver("{name}", None)  # the engine fails its prompt')
        else:
            moves.append(f"await server.{what}({', '.join(map(_plain_literal, [name, *numbers]))})")
    if leaving is not None:
        count = sum(what == "deliver" for what, *_ in shown["events"])
        ending = Template(_LEAVING).substitute(name=leaving, next=count)
        return [*lines, *block(moves[:-1]), ending]
    compared = laid_out(literal(list(shown["compared"])), 4, "names = ")
    alone = "asyncio.run(alone($new, *REQUESTS[name]))"
    return [
        *lines,
        *block(moves),
        *compared,
        "    return {name: server.got(name) for name in names}",
        "",
        "",
        "got = asyncio.run(main())" + Template(_COMPARED).safe_substitute(alone=alone),
    ]


def _plain_literal(value: Any) -> str:  # noqa: ANN401 - a name or a number
    return str(literal(value))


def _node(value: Any) -> Node:  # noqa: ANN401 - JSON values
    """Return data as Python source, what is repeated as a product."""
    if isinstance(value, str | list) and len(value) > _REPEATED:
        first = value[:1]
        if value == first * len(value):
            return f"{''.join(laid_out(literal(first)))} * {len(value)}"
    if isinstance(value, dict):
        return Group("{", [Named(f"{_key(k)}: ", _node(item)) for k, item in value.items()], "}")
    if isinstance(value, list):
        return Group("[", [_node(item) for item in value], "]")
    return literal(value)


def _key(key: Any) -> str:  # noqa: ANN401 - any key
    return "".join(laid_out(literal(key)))


#: What happens to a request, and what a program calls that.
_EVENTS = {
    "arrives": "arrive",
    "output delivered": "deliver",
    "engine fails": "fail",
    "client disconnects": "leave",
}


def events(lines: Sequence[Mapping[str, Any]], *, awaited: bool) -> list[list[Any]]:
    """Return what a program does for the lines of a history.

    Args:
        lines: what happened, as case files have it.
        awaited: whether the hooks were awaited: else outputs count when all of them are there.

    """
    found: list[list[Any]] = []
    for line in lines:
        event, name = _EVENTS[line["do"]], line["request"]
        if event != "deliver":
            found.append([event, name])
        elif awaited:
            found.append([event, name, line["output"]])
        if line["over"] and not awaited and event in ("arrive", "deliver"):
            found.append(["complete", name])
    return found
