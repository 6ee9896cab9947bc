# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests over HTTP, as they are written: also those that are odd as JSON."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import httpx

from conformance.engine import access
from conformance.logits.conversation import LIMIT

#: What requests ask for beside the plugin.
TEXT = "a neighbour that is served meanwhile"
TOKENS = 6

#: Where a completion is asked for.
PATH = "/v1/completions"

#: Characters of a body of about a megabyte.
_MEGABYTE = 1_000_000


@attrs.frozen
class Body:
    """A request over HTTP, as it is written."""

    says: str  #: what is odd about it
    text: str  #: JSON, or nearly


def written(model: str, arguments: str) -> str:
    """Return the body of a completion whose ``vllm_xargs`` are written already."""
    usual = json.dumps({"model": model, "prompt": TEXT, "max_tokens": TOKENS})
    return f'{usual[:-1]}, "vllm_xargs": {arguments}}}'


def odd(model: str, served: Iterable[Mapping[str, Any]]) -> list[Body]:
    """Return bodies that are odd as JSON, in every way under every key that is served.

    Args:
        model: its name on the server.
        served: arguments that a plugin takes; a key keeps the first value that it has.

    """
    first: dict[str, Mapping[str, Any]] = {}
    for arguments in served:
        for key in arguments:
            first.setdefault(key, arguments)
    bodies = []
    for key, arguments in first.items():
        for what, value in _others(arguments[key]):
            text = json.dumps({**arguments, key: value})
            bodies.append(Body(f"{what} for {key}", written(model, text)))
        twice = f'{{{json.dumps(key)}: "x", {json.dumps(arguments)[1:]}'
        bodies.append(Body(f"{key} twice", written(model, twice)))
    return bodies


def _others(value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - JSON values
    """Yield what a client may write for a value that works."""
    yield "a number beyond 64 bits", 10**30
    yield "true", True
    yield "a list of a megabyte", [1] * (_MEGABYTE // 3)
    yield "a text of a megabyte", "x" * _MEGABYTE
    if _whole(value):
        yield "a float", float(value)
    elif isinstance(value, list) and value and all(map(_whole, value)):
        yield "a list of floats", [float(item) for item in value]
        yield "a list of true", [True for _ in value]


def _whole(value: object) -> bool:
    # Larger ones are no floats.
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def send(url: str, text: str, path: str = PATH) -> int | None:
    """Send a body as it is written; return the status, or None where there is none."""
    try:
        with access.rest(url, LIMIT / 2) as client:
            return client.post(
                url + path,
                content=text.encode("utf-8", "surrogatepass"),
                headers={"Content-Type": "application/json"},
            ).status_code
    except httpx.HTTPError:
        return None
