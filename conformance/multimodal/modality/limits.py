# SPDX-License-Identifier: Apache-2.0
"""Checks of how many items a prompt may have, what one may be, and what reading it may cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from conformance.checking import checks
from conformance.findings import Finding, failed, inapplicable, passed
from conformance.multimodal.measuring import MEBIBYTE, measured
from conformance.multimodal.modality import bounds, hostile, models, packed, shape
from conformance.multimodal.modality.bench import Bench
from conformance.multimodal.modality.calls import ask, refused, whole
from conformance.multimodal.modality.inputs import no_files
from conformance.multimodal.modality.served import finished, parsed, run_through
from conformance.multimodal.modality.stock import Sample
from conformance.multimodal.modality.trial import Trial
from conformance.watching.clocks import shortest, undelayed
from conformance.watching.interruption import PluginHung
from conformance.watching.raised import said

#: What a model declares, and what its deployment allows.
DECLARED = ((1, None), (5, None), (5, 2), (5, 0), (0, None), (2, 7))

#: Seconds that counting may take; a busy machine holds anybody up now and then.
MOMENT, TIMES = 0.05, 5

#: Halvings of a limit in search of one that some samples keep.
HALVINGS = 40


def _model(bench: Bench, most: int) -> models.Model:
    """Return a model that takes so many items; its recipe does not matter here."""
    base = bench.models[0] if bench.sorted_out() else None
    recipe = bench.config(base).multimodal.recipes[bench.modality] if base else None
    return models.Model(f"of-{most}", models.declaring(bench.modality, recipe, most=most), None)


def _counted(bench: Bench, plugin: Any) -> Iterator[tuple[str, int, Any]]:  # noqa: ANN401 - a plugin, and items of its own
    """Yield each configuration in words, how many items it allows, and what the plugin says."""
    for most, allowed in DECLARED:
        options = {} if allowed is None else {"limit_mm_per_prompt": {bench.modality: allowed}}
        config = bench.deployed(_model(bench, most), **options)
        words = f"a model that takes {most}"
        words += "" if allowed is None else f", deployed with {allowed}"
        found = ask("get_max_per_prompt", plugin.get_max_per_prompt, config)
        value = found.value if found.good else found.error
        yield words, most if allowed is None else min(most, allowed), value


@checks("MM-44")
def bounded(trial: Trial) -> Finding:
    """The number is whole, and not above what the model and its deployment allow."""
    bench = trial.bench
    for words, most, value in _counted(bench, bench.make()):
        if isinstance(value, Exception):
            return failed(f"get_max_per_prompt raised {said(value)} for {words}")
        if (number := whole(value)) is None or number < 0:
            return failed(f"get_max_per_prompt returned {value!r} for {words}")
        if number > most:
            return failed(
                f"get_max_per_prompt returned {value!r} for {words}: at most {most} may be"
            )
    return passed(len(DECLARED))


@checks("MM-45", after=("MM-44",))
def steady(trial: Trial) -> Finding:
    """The number does not depend on what was asked or parsed before."""
    bench = trial.bench
    plugin = bench.make()
    before = list(_counted(bench, plugin))
    if (again := list(_counted(bench, plugin))) != before:
        return failed(_changed(before, again, "asked again"))
    for sample in trial.known():
        bench.serve(plugin, sample)
    if (after := list(_counted(bench, plugin))) != before:
        return failed(_changed(before, after, "after items were served"))
    return passed(len(DECLARED))


def _changed(
    before: Sequence[tuple[str, int, Any]], after: Sequence[tuple[str, int, Any]], when: str
) -> str:
    words, was, now = next(
        (words, was, now)
        for (words, _, was), (_, _, now) in zip(before, after, strict=True)
        if now != was
    )
    return f"get_max_per_prompt returned {was!r} for {words}, and {when}, {now!r}"


@checks("MM-46")
def quick(trial: Trial) -> Finding:
    """Asking costs next to nothing."""
    bench = trial.bench
    config = bench.deployed(_model(bench, 2))

    def asked() -> float:
        plugin = bench.make()
        started = undelayed()
        ask("get_max_per_prompt", plugin.get_max_per_prompt, config)
        return undelayed() - started

    if shortest(asked, MOMENT, TIMES) <= MOMENT:
        return passed(1)
    return failed(
        f"get_max_per_prompt took more than {MOMENT * 1000:.0f} ms, before anything is parsed"
    )


@checks("MM-47")
def obeyed(trial: Trial) -> Finding:
    """Where a deployment allows next to nothing, something is refused."""
    bench = trial.bench
    plugin = bench.make()
    tight = bounds.tightened(plugin.limits)
    if tight is None:
        return inapplicable("limits has no number whose name begins with max")
    items = [(sample, _item(bench, plugin, sample)) for sample in bench.good]
    for sample, item in items:
        found = ask("validate", plugin.validate, [item], tight)
        if _kept_out(found.error):
            return passed(len(items))
        if found.error is not None:
            return failed(f"validate raised {said(found.error)} for {sample} and {tight!r}")
    return failed(f"validate let {len(items)} items through, each with the limits {tight!r}")


def _kept_out(error: BaseException | None) -> bool:
    """Tell whether a limit is obeyed; that a `ValueError` is to be an `InputError`, MM-53 says."""
    return refused(error) or isinstance(error, ValueError)


@checks("MM-48", after=("MM-47",))
def every_item(trial: Trial) -> Finding:
    """An item beyond the limits is refused wherever it stands."""
    bench = trial.bench
    plugin = bench.make()
    items = {sample.name: _item(bench, plugin, sample) for sample in bench.good}
    count = 0
    for limits, allowed, beyond in _dividing(plugin, items):
        for row in ([allowed, beyond], [beyond, allowed], [allowed, allowed, beyond]):
            count += 1
            found = ask("validate", plugin.validate, [items[name] for name in row], limits)
            if not _kept_out(found.error):
                what = "let them through" if found.error is None else f"raised {said(found.error)}"
                return failed(
                    f"validate refuses {beyond} alone, and of {', '.join(row)} it {what}: "
                    f"{limits!r}"
                )
    if not count:
        return inapplicable("no limit was found that only some of the items keep")
    return passed(count)


def _dividing(plugin: Any, items: Mapping[str, Any]) -> Iterator[tuple[Any, str, str]]:  # noqa: ANN401 - a plugin, and items of its own
    """Yield limits with an item that keeps them and one that does not, one for each number."""
    for name, value in bounds.numbers(plugin.limits):
        for halving in range(1, HALVINGS):
            smaller = value // 2**halving if isinstance(value, int) else value / 2**halving
            if not smaller:
                break
            limits = bounds.replaced(plugin.limits, {name: smaller})
            answers = {
                key: ask("validate", plugin.validate, [item], limits) for key, item in items.items()
            }
            kept = [key for key, found in answers.items() if found.good]
            beyond = [key for key, found in answers.items() if _kept_out(found.error)]
            if beyond:
                if kept:
                    yield limits, kept[0], beyond[0]
                break


@checks("MM-49", after=("MM-68", "MM-70", "MM-72"))
def changes_nothing(trial: Trial) -> Finding:
    """Items, their list, and the limits are as they were."""
    bench = trial.bench
    config = bench.config(bench.models[0])
    for sample in bench.good:
        plugin, twin = bench.make(), bench.make()
        item, other = _item(bench, plugin, sample), _item(bench, plugin, sample)
        row = [item, other]
        limits = plugin.limits
        was = repr(limits)
        found = ask("validate", plugin.validate, row, limits)
        if refused(found.error):
            continue  # two of them may be too many
        if len(row) != 2 or row[0] is not item or row[1] is not other:  # noqa: PLR2004 - as above
            return failed(f"validate changed the list of items that it was given, two of {sample}")
        if repr(plugin.limits) != was:
            return failed(f"validate changed the limits, for {sample}")
        got = finished(plugin, item, config, begin="content_hash")
        wanted = finished(twin, _item(bench, twin, sample), config, begin="content_hash")
        if what := shape.difference(got, wanted):
            return failed(f"validate changed {sample}: afterwards {what}")
    return passed(len(bench.good))


def _item(bench: Bench, plugin: object, sample: Sample) -> Any:  # noqa: ANN401 - what it parses
    return parsed(plugin, sample.data(bench.form)).item


#: What one item may take beyond what it was sent as, and the seconds of processor time.
MOST_MEMORY, MOST_SECONDS = 512 * MEBIBYTE, 10.0

#: What reading a header may take beside what was sent; items decoded take 36 MiB and more.
HEADER = 12 * MEBIBYTE


@checks("MM-56")
def bombs(trial: Trial) -> Finding:
    """Nothing that clients send takes more than it should, whether it is refused or not."""
    bench = trial.bench
    of_its_own = packed.bombs(trial.known())
    samples = (*bench.promises.invalid, *hostile.bombs(bench.modality), *of_its_own)
    texts = tuple(hostile.runs(trial.known()))
    if not (samples or texts):
        return inapplicable("nothing is known that is small to send and large to read")
    plugin = bench.make()
    config = bench.config(bench.models[0])
    for sample in samples:
        # Once more: what a library's own threads take is not the same each time.
        if (what := _takes(plugin, sample.data(bench.form), config)) and (
            what := _takes(plugin, sample.data(bench.form), config)
        ):
            return failed(f"{sample}{what}")
    for sample in texts:  # of little memory, and too many to measure each
        try:
            run_through(plugin, sample.data(bench.form), config)
        except PluginHung as error:
            return failed(f"{sample}: {error}")
    return passed(len(samples) + len(texts))


def _takes(plugin: object, data: object, config: object) -> str | None:
    """Say what an item takes that is too much, or return None."""
    with measured() as cost:
        try:
            served = run_through(plugin, data, config)
        except PluginHung as error:
            return f": {error}"
    if isinstance(served.error, MemoryError):
        return f": {served.step} took more memory than there is"
    if cost.memory > MOST_MEMORY + _bytes(data):
        return f" took more than {MOST_MEMORY // MEBIBYTE} MiB of memory"
    if cost.seconds > MOST_SECONDS:
        return f" took more than {MOST_SECONDS:.0f} s of processor time"
    return None


def _bytes(data: object) -> int:
    return len(data) if isinstance(data, bytes | str) else 0


@checks("MM-57")
def headers(trial: Trial) -> Finding:
    """Parsing, validating and estimating decode nothing."""
    bench = trial.bench
    count = 0
    for sample in hostile.bulky(bench.modality):
        config = bench.config(bench.models[0])
        plugin = bench.make()
        data = sample.data(bench.form)
        room = HEADER + 3 * _bytes(data)
        with measured() as cost:
            found = parsed(plugin, data)
        if not found.good:
            continue  # it may be too large for this plugin, or of an encoding it does not know
        count += 1
        if cost.memory > room:
            return failed(_decoded("parse_input", sample))
        for step, call in _before(plugin, found.item, config):
            with measured() as cost:
                ask(step, call)
            if cost.memory > room:
                return failed(_decoded(step, sample))
    if not count:
        return no_files(bench, "no file is known that is small and large when decoded")
    return passed(count)


def _before(
    plugin: Any,  # noqa: ANN401 - a plugin
    item: Any,  # noqa: ANN401 - and what it parsed
    config: Any,  # noqa: ANN401 - a model's configuration
) -> list[tuple[str, Callable[[], Any]]]:
    return [
        ("validate", lambda: plugin.validate([item], plugin.limits)),
        ("estimate_tokens", lambda: plugin.estimate_tokens(item, config)),
    ]


def _decoded(step: str, sample: Sample) -> str:
    return f"{step} took more than {HEADER // MEBIBYTE} MiB for {sample}: it was decoded"
