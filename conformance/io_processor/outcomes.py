# SPDX-License-Identifier: Apache-2.0
"""Checks of what is made of outputs: all of them, in any order, in a form that can be written."""

from __future__ import annotations

import asyncio
import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from conformance.comparison import difference, first_line, plain, shortened
from conformance.findings import Finding, failed, passed
from conformance.interruption import limited
from conformance.io_processor.answers import Kind, of_error
from conformance.io_processor.calling import none_awaited, overridden
from conformance.io_processor.direct import Noted, finished, prepared
from conformance.io_processor.host import as_json, response_class
from conformance.io_processor.parameters import parsed
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.io_processor.bench import Bench
    from conformance.io_processor.trial import Trial


def same_awaited(trial: Trial) -> Finding:
    """The awaited hooks give what the others give."""
    bench = trial.bench
    if not overridden(bench):
        return none_awaited()
    for index, data in enumerate(bench.stock.valid):
        plugin = bench.make()
        wanted = plain(plugin.pre_process(prompt=parsed(plugin, bench, data), request_id="id-0"))
        got = plain(_awaited_prompts(bench, data))
        if what := difference(got, wanted):
            return failed(
                f"for {shortened(data)} pre_process_async gave {what} of pre_process",
                case={"data": data},
            )
        answer = bench.alone(index, "id-0", awaited=True)
        plugin = bench.make()
        wanted = finished(plugin, bench, prepared(plugin, bench, data, "id-0"), "id-0")
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
    count = len(bench.stock.valid)
    return passed(count, count)


def _awaited_prompts(bench: Bench, data: Any) -> Any:  # noqa: ANN401 - JSON values
    plugin = bench.make()

    async def ask() -> Any:  # noqa: ANN401 - any prompts
        return await plugin.pre_process_async(prompt=parsed(plugin, bench, data), request_id="id-0")

    with limited():
        return asyncio.run(ask())


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
        outputs = prepared(plugin, bench, data, "id-0")
        seen: set[int] = set()
        noted = [Noted(output, partial(seen.add, place)) for place, output in enumerate(outputs)]
        finished(plugin, bench, list(noted), "id-0")
        for place in range(len(outputs)):
            which = "first" if place == 0 else "last" if place == len(outputs) - 1 else "middle"
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
    return passed(len(several), len(several))


def one_prompt() -> Finding:
    """Return that a rule about several outputs does not apply."""
    return Finding(
        Verdict.NOT_APPLICABLE, message="every valid request that was tried became one prompt"
    )


def left(trial: Trial) -> Finding:
    """Outputs are the same after ``post_process``."""
    bench = trial.bench
    for data in bench.stock.valid[: bench.stock.given]:
        plugin = bench.make()
        outputs = prepared(plugin, bench, data, "id-0")
        before = [_described(output) for output in outputs]
        given = list(outputs)
        finished(plugin, bench, given, "id-0")
        for place, (output, was) in enumerate(zip(outputs, before, strict=True)):
            if difference(_described(output), was):
                return failed(
                    f"post_process changed output {place} of {shortened(data)}", case={"data": data}
                )
    return passed(bench.stock.given, bench.stock.given)


def _described(output: Any) -> Any:  # noqa: ANN401 - a PoolingRequestOutput
    return copy.deepcopy([output.request_id, output.prompt_token_ids, output.outputs.data.tolist()])


def serialisable(trial: Trial) -> Finding:
    """The response can be written as JSON."""
    if why := response_trouble(trial.bench):
        return failed(why)
    return passed(trial.bench.stock.given, trial.bench.stock.given)


def response_trouble(bench: Bench) -> str | None:
    """Say which response cannot be written, or return None."""
    for data in bench.stock.valid[: bench.stock.given]:
        plugin = bench.make()
        try:
            result = plugin.post_process(prepared(plugin, bench, data, "id-0"), request_id="id-0")
        except Exception:  # noqa: BLE001, S112 - another rule is about that
            continue
        try:
            as_json(response_class()(request_id="id-0", data=result))
        except Exception as error:  # noqa: BLE001 - many ways
            if plugin.answer(error).guessed:
                continue
            return (
                f"what post_process gave for {shortened(data)} cannot be written: "
                f"{type(error).__name__}: {first_line(str(error))}"
            )
    return None


def response(trial: Trial) -> Finding:
    """``output_to_response`` returns vLLM's response with the data in it."""
    if why := wrapping_trouble(trial.bench):
        return failed(why)
    return passed(trial.bench.stock.given, trial.bench.stock.given)


def wrapping_trouble(bench: Bench) -> str | None:
    """Say what ``output_to_response`` does wrong, or return None."""
    for data in bench.stock.valid[: bench.stock.given]:
        plugin = bench.make()
        try:
            result = plugin.post_process(prepared(plugin, bench, data, "id-0"), request_id="id-0")
        except Exception:  # noqa: BLE001, S112 - another rule is about that
            continue
        try:
            got = plugin.output_to_response(result)
        except Exception as error:  # noqa: BLE001 - any is wrong here
            if plugin.answer(error).guessed:
                continue
            return f"output_to_response {of_error(error, '').describe()}"
        if not isinstance(got, response_class()):
            return f"output_to_response returned {type(got).__name__}, not IOProcessorResponse"
        try:
            as_json(got)
        except Exception as error:  # noqa: BLE001 - many ways
            if plugin.answer(error).guessed:
                continue
            why = f"{type(error).__name__}: {first_line(str(error))}"
            return f"what output_to_response returned cannot be written: {why}"
    return None


def steady(trial: Trial) -> Finding:
    """The same request gets the same answer again."""
    bench = trial.bench
    if places := bench.unsteady():
        where = ", ".join("".join(f"[{part}]" for part in place) or "the answer" for place in
                          sorted(places)[:3])  # fmt: skip
        return failed(f"the same request, asked again, got another answer at {where}")
    return passed(bench.stock.given, bench.stock.given)


def same_offline(trial: Trial) -> Finding:
    """Without a request id the answer is the same."""
    bench = trial.bench
    for index in range(bench.stock.given):
        data = bench.stock.valid[index]
        online = bench.alone(index, "id-0")
        offline, plugin = bench.try_offline(data)
        if online.kind is not offline.kind:
            return failed(f"{shortened(data)} {online.describe()}; offline it {offline.describe()}")
        if online.kind is Kind.ANSWERED:
            try:
                got = as_json(response_class()(data=offline.data))
            except Exception:  # noqa: BLE001 - another rule is about that
                got = offline.data
            del plugin
            if what := difference(got, online.data, bench.hidden):
                return failed(
                    f"for {shortened(data)} the plugin gave offline {what}", case={"data": data}
                )
    return passed(bench.stock.given, bench.stock.given)
