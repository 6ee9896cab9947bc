# SPDX-License-Identifier: Apache-2.0
"""What requests carry: from the profile, or found by watching what the plugin reads."""

from __future__ import annotations

import copy
import math
import re
from collections import deque
from typing import TYPE_CHECKING, Any

import attrs
import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from conformance.io_processor.answers import Kind
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from conformance.io_processor.bench import Bench

#: Data of a profile's strategy that are tried, and variations that are kept.
DRAWN = 8
KEPT = 8

#: Requests in which the harness looks for what the plugin takes, and keys that it tries together.
ATTEMPTS = 60
MOST_KEYS = 3
MOST_KEYS = 3

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the hounds"


@attrs.frozen
class Stock:
    """What requests carry."""

    valid: tuple[Any, ...]  #: those of the profile first, each answered otherwise than the others
    invalid: tuple[Any, ...]
    origin: str | None  #: the profile, or None where the harness found out by itself
    given: int  #: how many of the valid are the profile's
    keys: tuple[str, ...] = ()  #: what was read of the data, when nobody told
    #: How many prompts each valid one becomes; 0 where it was not answered.
    prompts: tuple[int, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the effective profile, for the certificate."""
        return {
            "origin": self.origin or "found by the harness",
            "valid": list(self.valid[: self.given]),
            "invalid": list(self.invalid),
        }

    def several(self) -> list[int]:
        """Return the valid data that become more than one prompt, fewest prompts first."""
        found = [index for index, count in enumerate(self.prompts) if count > 1]
        return sorted(found, key=lambda index: (self.prompts[index], index))


def find(bench: Bench, section: Mapping[str, Any], *, origin: str | None) -> Stock:
    """Return what the plugin is tried with.

    Args:
        bench: the plugin; its stock is not there yet.
        section: the ``[io-processor]`` section, empty without a profile.
        origin: the profile.

    Raises:
        UsageError: the profile gives no valid data.

    """
    if section and not section.get("valid"):
        raise UsageError(
            f"profile {origin}: [io-processor] valid must hold at least one request's data."
        )
    keys: tuple[str, ...] = ()
    if section:
        given = _distinct(_drawn(section["valid"], bench.seed))
    else:
        given, keys = discover(bench)
    invalid = _distinct(_drawn(section.get("invalid", []), bench.seed))
    valid, counts = _with_variations(bench, given)
    return Stock(tuple(valid), tuple(invalid), origin, len(given), keys=keys, prompts=tuple(counts))


def starter(keys: Iterable[str]) -> str:
    """Return a profile to start from."""
    data = ", ".join(f'{key} = "..."' for key in keys) or 'text = "..."'
    return f"[io-processor]\nvalid = [ {{ {data} }}, {{ {data} }} ]\ninvalid = [ {{}} ]\n"


def _drawn(values: Any, seed: int) -> list[Any]:  # noqa: ANN401 - a list or a strategy
    """Return values of a profile, those of a strategy drawn."""
    if not isinstance(values, SearchStrategy):
        return list(values)
    drawn: list[Any] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=DRAWN,
        database=None,
        phases=(Phase.generate,),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(values)
    def body(value: Any) -> None:  # noqa: ANN401 - the author's own
        drawn.append(value)

    body()
    return drawn


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(_same(value, other) for other in found):
            found.append(value)
    return found


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401 - any value
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # noqa: BLE001 - arrays have no truth
        return one is other


def _with_variations(bench: Bench, given: list[Any]) -> tuple[list[Any], list[int]]:
    """Return valid data with variations of them that the plugin takes, and their prompts.

    Short ones make small counterexamples, long ones more prompts.
    """
    valid = list(given)
    counts = [_prompts(bench, data)[0] for data in given]
    room = KEPT
    for data in given:
        for other in varied(data):
            if not room or len(valid) >= len(given) + KEPT:
                return valid, counts
            if any(_same(other, known) for known in valid):
                continue
            count, answered = _prompts(bench, other)
            if answered:
                valid.append(other)
                counts.append(count)
                room -= 1
    return valid, counts


def _prompts(bench: Bench, data: Any) -> tuple[int, bool]:  # noqa: ANN401 - JSON values
    """Return how many prompts data become, and whether they are answered."""
    played = bench.try_online(data)
    waits = [step.then for step in played.steps if step.what == "arrives"]
    found = re.match(r"waits for (\d+)", waits[0]) if waits else None
    return int(found[1]) if found else 0, played.answers[0].kind is Kind.ANSWERED


def varied(data: Any) -> Iterator[Any]:  # noqa: ANN401 - JSON values
    """Yield data like these, with one string or list cut short, turned around or made longer."""
    for place, value in places(data):
        if isinstance(value, str) and len(value) > 1:
            words = value.split(" ")
            longer = [value[::-1] if len(words) == 1 else " ".join(words[::-1])]
            shorter = [" ".join(words[: len(words) // 2])] if len(words) > 1 else []
            for text in (*shorter, *longer, f"{value} {value}"):
                yield changed(data, place, text)
        elif isinstance(value, list) and value:
            for items in (value[: max(1, len(value) // 2)], value[::-1], [*value, *value]):
                yield changed(data, place, copy.deepcopy(items))


Path = tuple[str | int, ...]


def places(data: Any, here: Path = ()) -> Iterator[tuple[Path, Any]]:  # noqa: ANN401 - JSON values
    """Yield every place in JSON data with its value."""
    yield here, data
    if isinstance(data, dict):
        for key, value in data.items():
            yield from places(value, (*here, key))
    elif isinstance(data, list):
        for index, value in enumerate(data[:4]):
            yield from places(value, (*here, index))


def changed(data: Any, place: Path, value: Any) -> Any:  # noqa: ANN401 - JSON values
    """Return data with another value at a place."""
    if not place:
        return value
    fresh = copy.deepcopy(data)
    inner = fresh
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    return fresh


def without(data: Any, place: Path) -> Any:  # noqa: ANN401 - JSON values
    """Return data without the value at a place."""
    fresh = copy.deepcopy(data)
    inner = fresh
    for part in place[:-1]:
        inner = inner[part]
    del inner[place[-1]]
    return fresh


#: What a hostile client sends in place of something honest.
_ODD: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 1e308, "", " ", "\x00", "\ud7ff\U0001f600", [], {}, [None], {"": {}},
    [[]], "x" * 20_000, [0] * 5_000,
)  # fmt: skip


def hostile(valid: tuple[Any, ...]) -> SearchStrategy[Any]:
    """Return JSON that a hostile or mistaken client may send; honest data are among it."""
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
        st.sampled_from(_ODD),
    )
    anything = st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
        ),
        max_leaves=6,
    )
    mended = [(data, place) for data in valid for place, _ in places(data)]
    if not mended:
        return anything
    spoilt = st.tuples(st.sampled_from(mended), st.one_of(anything, st.none())).map(
        lambda drawn: changed(drawn[0][0], drawn[0][1], drawn[1])
    )
    removable = [(data, place) for data, place in mended if place]
    choices = [spoilt, anything]
    if removable:
        choices.insert(0, st.sampled_from(removable).map(lambda drawn: without(*drawn)))
    return st.one_of(*choices)


#: Lists within lists, not yet so deep that reading the JSON fails.
_DEEP: Any = "x"
for _ in range(600):
    _DEEP = [_DEEP]

#: What JSON, or Python's reader of it, takes, and few think of: half of a surrogate pair, a number
#: of any length, and those that are none.
_EXTREME = ("\ud800", 10**30, math.nan, math.inf, _DEEP)

#: Numbers that a computation may not expect.
_NUMBERS = (0, -1, 1e-320)


def extreme(valid: tuple[Any, ...]) -> Iterator[Any]:
    """Yield data with one place each at the limits of what can be sent at all."""
    for data in valid:
        for place, value in places(data):
            if place and isinstance(place[-1], int) and place[-1] > 0:
                continue  # the first of a list stands for the others
            numbers = _NUMBERS if isinstance(value, int | float) else ()
            for other in (*numbers, *_EXTREME):
                yield changed(data, place, other)


_KEY = re.compile(r"['\"\[(<` ]([A-Za-z_]\w*)['\"\])>`, ]")


def discover(bench: Bench) -> tuple[list[Any], tuple[str, ...]]:
    """Look for data that the plugin answers, by what it reads and what it complains about.

    Returns:
        Two data that it answers, or none; and the keys that it read.

    """
    keys: list[str] = []
    # Nothing tells as much as what is looked for in an empty object.
    candidates: deque[Any] = deque([{}, TEXT, [TEXT], [1, 2, 3]])
    seen: list[Any] = []
    for _ in range(ATTEMPTS):
        if not candidates:
            break
        data = candidates.popleft()
        if any(_same(data, other) for other in seen):
            continue
        seen.append(data)
        watching = _Watching(data, keys) if isinstance(data, dict) else data
        answer = bench.try_online(watching).answers[0]
        if answer.kind is Kind.ANSWERED and data != {}:
            return [data, *_another(bench, data)], tuple(keys)
        known = data if isinstance(data, dict) else {}
        # What was looked for comes before what the message may only mention.
        candidates.extendleft(reversed(_filled(known, keys)))
        candidates.extend(_filled(known, _KEY.findall(f"{answer.error} ")))
    if seen and bench.try_online({}).answers[0].kind is Kind.ANSWERED:
        return [{}], tuple(keys)
    return [], tuple(keys)


def _filled(data: dict[str, Any], keys: Iterable[str]) -> list[dict[str, Any]]:
    """Return data with another one of the keys, with values of likely types."""
    return [
        {**data, key: value}
        for value in (TEXT, [TEXT, "and so on"], 4, [1, 2, 3], 0.5)
        for key in keys
        if key not in data and len(data) < MOST_KEYS
    ]


def _another(bench: Bench, data: Any) -> list[Any]:  # noqa: ANN401 - JSON values
    """Return other data that the plugin answers, or none."""
    for other in varied(data):
        if bench.try_online(other).answers[0].kind is Kind.ANSWERED:
            return [other]
    return []


class _Watching(dict[str, Any]):
    """A dictionary that notes which keys are asked for."""

    def __init__(self, data: Mapping[str, Any], keys: list[str]) -> None:
        super().__init__(data)
        self._keys = keys

    def _note(self, key: object) -> None:
        if isinstance(key, str) and key not in self._keys:
            self._keys.append(key)

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - JSON values
        self._note(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - JSON values
        self._note(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Watching:
        return _Watching(copy.deepcopy(dict(self), memo), self._keys)
