# SPDX-License-Identifier: Apache-2.0
"""Checks of what is made of outputs: all of them, in any order, in a form that can be written."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import attrs

from conformance.checking import checks
from conformance.counterexample.io_engine_player import Noted
from conformance.findings import Finding, failed, inapplicable, passed
from conformance.inputs.places import changed, places
from conformance.io_processor import REQUEST
from conformance.io_processor.answers import Kind, of_error
from conformance.io_processor.bench import Bench
from conformance.io_processor.calling import none_awaited, overridden
from conformance.io_processor.direct import finished, prepared, served
from conformance.io_processor.documented import restore_documented_base
from conformance.io_processor.messages import as_json, response_class
from conformance.io_processor.prompts import parsed, prompts_of
from conformance.io_processor.trial import Trial
from conformance.io_processor.watched import Watched
from conformance.watching import hash_seeds
from conformance.watching.comparison import difference, plain, shortened, told_places
from conformance.watching.interruption import limited
from conformance.watching.raised import said


@checks("IO-18", after=("IO-06",))
def same_awaited(trial: Trial) -> Finding:
    """The awaited hooks give what the others give."""
    bench = trial.bench
    if not overridden(bench):
        return none_awaited()
    for index, data in enumerate(bench.stock.valid):
        wanted = plain(prompts_of(bench.make(), bench, data))
        got = plain(_awaited_prompts(bench, data))
        if what := difference(got, wanted):
            return failed(
                f"for {shortened(data)} pre_process_async gave {what} of pre_process",
                case={"data": data},
            )
        answer = bench.alone(index, awaited=True)
        wanted = served(bench, data)
        if answer.kind is not Kind.ANSWERED:
            return failed(
                f"with the awaited hooks the valid request {shortened(data)} {answer.describe()}",
                case={"data": data},
            )
        if what := difference(answer.data, wanted, bench.hidden):
            return failed(
                f"for {shortened(data)} post_process_async gave {what} of post_process",
                case={"data": data},
            )
    return passed(len(bench.stock.valid))


def _awaited_prompts(bench: Bench, data: object) -> Any:  # noqa: ANN401 - JSON values
    plugin = bench.make()

    async def ask() -> Any:  # noqa: ANN401 - any prompts
        return await plugin.pre_process_async(prompt=parsed(plugin, bench, data), request_id="id-0")

    with limited():
        return asyncio.run(ask())


#: Outputs that few requests have more of.
EARLY = 8


@checks("IO-19")
def used(trial: Trial) -> Finding:
    """No place among the outputs is never read."""
    bench = trial.bench
    several = bench.stock.several()
    if not several:
        return one_prompt()
    #: Of the first, the last, and those between: in how many requests they were all read.
    never: dict[str, tuple[int, int, Any]] = {}
    read: set[str] = set()
    for index in several:
        data = bench.stock.valid[index]
        plugin = bench.make()
        outputs = prepared(plugin, bench, data)
        seen: set[int] = set()
        noted = [Noted(output, partial(seen.add, place)) for place, output in enumerate(outputs)]
        finished(plugin, bench, list(noted))
        for place in range(len(outputs)):
            which = _which(place, len(outputs))
            if place in seen:
                read.add(which)
            else:
                never.setdefault(which, (place, len(outputs), data))
    for which, (place, count, data) in never.items():
        if which not in read:
            return failed(
                f"of the {count} outputs for {shortened(data)} post_process never read number "
                f"{place}",
                len(several),
                case={"data": data},
            )
    return passed(len(several))


def _which(place: int, count: int) -> str:
    """Return which of several outputs one is; those beyond the eighth are told by their number."""
    if place in (0, count - 1):
        return "first" if place == 0 else "last"
    return "middle" if place < EARLY else f"number {place}"


def one_prompt() -> Finding:
    """Return the finding that a rule about several outputs does not apply."""
    return inapplicable("every valid request that was tried became one prompt")


@checks("IO-21")
def left(trial: Trial) -> Finding:
    """Outputs are the same after ``post_process``."""
    bench = trial.bench
    for data in bench.stock.originals:
        plugin = bench.make()
        outputs = prepared(plugin, bench, data)
        before = [_described(output) for output in outputs]
        given = list(outputs)
        finished(plugin, bench, given)
        for place, (output, was) in enumerate(zip(outputs, before, strict=True)):
            if difference(_described(output), was):
                return failed(
                    f"post_process changed output {place} of {shortened(data)}", case={"data": data}
                )
    return passed(bench.stock.given)


def _described(output: Any) -> Any:  # noqa: ANN401 - a PoolingRequestOutput
    return copy.deepcopy([output.request_id, output.prompt_token_ids, output.outputs.data.tolist()])


def _results(bench: Bench, every: Iterable[Any]) -> Iterator[tuple[Any, Watched, Any]]:
    """Yield data, the instance that served them, and what its ``post_process`` returned."""
    for data in every:
        plugin = bench.make()
        # Where something raises, another rule is about that.
        with suppress(Exception):
            yield (
                data,
                plugin,
                plugin.post_process(prepared(plugin, bench, data), request_id="id-0"),
            )


@checks("IO-22")
def serialisable(trial: Trial) -> Finding:
    """The response can be written as JSON."""
    bench = trial.bench
    sizes = list(bench.stock.sizes())
    return unserialisable(bench, sizes) or passed(bench.stock.given + len(sizes))


def unserialisable(bench: Bench, sizes: Iterable[Any] = ()) -> Finding | None:
    """Return which response cannot be written, or None."""
    for data, plugin, result in _results(bench, chain(bench.stock.originals, sizes)):
        call, made = "post_process", result
        if bench.generation == REQUEST:  # every host that calls parse_request writes this
            call = "output_to_response"
            try:
                made = plugin.output_to_response(result)
            except Exception:  # noqa: BLE001, S112 - IO-23 is about that
                continue
        if why := _unwritable(bench, plugin, made):
            return failed(
                f"what {call} gave for {shortened(data)} cannot be written: {why}",
                case={"data": data},
            )
    return None


def _write(made: object) -> None:
    """Write what the plugin answered, as vLLM does."""
    if not isinstance(made, response_class()):
        made = response_class()(request_id="id-0", data=made)
    as_json(made)


def _unwritable(bench: Bench, plugin: Watched, made: object) -> str | None:
    """Say why what a plugin made cannot be written, unless it is made of guessed outputs."""
    try:
        _write(made)
    except Exception as error:  # noqa: BLE001 - many ways
        return None if plugin.answer(error).guessed else said(error, bench.path)
    return None


@checks("IO-23")
def response(trial: Trial) -> Finding:
    """``output_to_response`` returns vLLM's response with the data in it."""
    return unwrapped(trial.bench) or passed(trial.bench.stock.given)


def unwrapped(bench: Bench) -> Finding | None:
    """Return what ``output_to_response`` does wrong, or None."""
    for data, plugin, result in _results(bench, bench.stock.originals):
        try:
            got = plugin.output_to_response(result)
        except Exception as error:  # noqa: BLE001 - any is wrong here
            if plugin.answer(error).guessed:
                continue
            why = of_error(error, "", path=bench.path).describe()
            return failed(f"output_to_response {why}", case={"data": data})
        if not isinstance(got, response_class()):
            return failed(
                f"output_to_response returned {type(got).__name__}, not IOProcessorResponse",
                case={"data": data},
            )
    return None


#: Texts whose order in a set is hardly ever the same with other hashes; requests with them.
MANY_TEXTS = ["red", "green", "blue", "white", "black", "brown"]
MOST_HASHED = 4


@checks("IO-24")
def steady(trial: Trial) -> Finding:
    """The same request gets the same answer again."""
    bench = trial.bench
    if places := bench.unsteady():
        where = told_places(places, "the answer")
        other = "the same values in another order" if bench.reordered else "another answer"
        return failed(f"the same request, asked again, got {other} at {where}")
    if hash_seeds.may_depend(bench.cls):
        asked = Hashed.of(bench)
        if found := hash_seeds.apart(f"{__name__}:hashed", asked):
            number, what = found
            why = (
                f"for {shortened(asked.data[number])} two processes gave, with other hashes of "
                f"texts, {what}: the order of a set is another one in each server"
            )
            return failed(why, case={"hashed": asked.data[number]})
    return passed(bench.stock.given)


@attrs.frozen
class Hashed:
    """What a process with other hashes of texts needs to answer requests."""

    cls: type[Any]
    generation: str
    model: str
    seed: int
    data: tuple[Any, ...]

    @classmethod
    def of(cls, bench: Bench) -> Hashed:
        """Return the requests of a bench, and some with more texts, whose order tells more."""
        valid = bench.stock.originals
        more = [
            changed(data, place, MANY_TEXTS if isinstance(value, list) else " ".join(MANY_TEXTS))
            for data in valid
            for place, value in places(data)
            if isinstance(value, str) or (isinstance(value, list) and _texts(value))
        ]
        model = bench.model
        data = (*valid[:MOST_HASHED], *more[:MOST_HASHED])
        return cls(bench.cls, bench.generation, model, bench.seed, data)


def _texts(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(item, str) for item in value)


def hashed(asked: Hashed) -> list[Any]:
    """Return how requests are answered; this is the process with other hashes."""
    if asked.generation == REQUEST:
        restore_documented_base()
    bench = Bench.open(asked.cls, asked.generation, asked.model, asked.seed)
    answers = [bench.answer_to(data) for data in asked.data]
    return [answer.data if answer.kind is Kind.ANSWERED else None for answer in answers]


@checks("IO-25")
def same_offline(trial: Trial) -> Finding:
    """Without a request id the answer is the same, but for what says which request it is for."""
    bench = trial.bench
    for index, data in enumerate(bench.stock.originals):
        online = bench.alone(index)
        offline = bench.try_offline(data)
        if online.kind is not offline.kind:
            then = offline.describe(served=False)
            return failed(
                f"{shortened(data)} {online.describe()}; offline it {then}", case={"data": data}
            )
        if online.kind is not Kind.ANSWERED:
            continue
        got = offline.data
        if bench.generation == REQUEST:  # output_to_response makes data of it
            got = served(bench, data, None)
        else:
            with suppress(Exception):  # another rule is about that
                got = as_json(response_class()(data=got))
        if what := difference(*_unnamed(got, online.data), bench.hidden):
            return failed(
                f"for {shortened(data)} the plugin gave offline {what}", case={"data": data}
            )
    return passed(bench.stock.given)


#: The id of a request, or the end of it.
_ID = "id-0"


def _unnamed(got: object, online: object) -> tuple[Any, Any]:
    """Return two answers without what tells the request id in the second one."""
    if isinstance(got, dict) and isinstance(online, dict):
        both = {key: _unnamed(got.get(key), value) for key, value in online.items()}
        named = {key for key, value in online.items() if _names(value) and got.get(key) is None} | {
            key for key, (_, value) in both.items() if value is _NAMED
        }
        return (
            {key: both[key][0] if key in both else got[key] for key in got if key not in named},
            {key: value for key, (_, value) in both.items() if key not in named},
        )
    if isinstance(got, list) and isinstance(online, list) and len(got) == len(online):
        pairs = [_unnamed(*pair) for pair in zip(got, online, strict=True)]
        return [one for one, _ in pairs], [other for _, other in pairs]
    return (_NAMED, _NAMED) if isinstance(online, str) and _ID in online else (got, online)


_NAMED = "a text with the request id"


def _names(value: object) -> bool:
    """Tell whether the request id is somewhere in a value."""
    return any(isinstance(leaf, str) and _ID in leaf for _, leaf in places(value))
