# SPDX-License-Identifier: Apache-2.0
"""Checks of what is left of items that are over: files, threads, memory."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy.typing as npt
from PIL import Image

from conformance.checking import checks
from conformance.findings import Finding, failed, inapplicable, passed, unjudged
from conformance.multimodal.modality import hostile, media
from conformance.multimodal.modality.bench import Bench
from conformance.multimodal.modality.served import run_through
from conformance.multimodal.modality.stock import Sample, file, given
from conformance.multimodal.modality.trial import Trial
from conformance.watching.endless import ends
from conformance.watching.interruption import progressed
from conformance.watching.leaks import LONGEST, Spent, growing, open_files, size_of, threads

#: Items after which files and threads are counted, and how many of these may be the plugin's own.
ROUND, OWN = 60, 8

#: Items between two measurements. What does not grow with the first ones grows with none; of what
#: does, so many more are taken that a cache that has an end has come to it.
FIRST, MEASURED, MEASUREMENTS = 100, 500, 5

#: Items in which a container is seen to grow.
SOME = 6

#: Seconds of work, and of waiting for something else than a processor, for all of them.
WORKED, WAITED = 20.0, 20.0


@checks("MM-75")
def closed(trial: Trial) -> Finding:
    """Neither files nor threads are left of items, taken or refused."""
    bench = trial.bench
    plugin = bench.make()
    samples = (*bench.good, *hostile.cut(bench.good), *hostile.nonsense(bench.modality)[-4:])
    before_dir = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
        tempfile.tempdir = folder
        try:
            for sample in samples:  # what libraries open once is theirs
                bench.serve(plugin, sample)
            gc.collect()
            before = open_files(), threads(), len(list(Path(folder).iterdir()))
            for number in range(ROUND):
                bench.serve(plugin, samples[number % len(samples)])
            gc.collect()
            after = open_files(), threads(), len(list(Path(folder).iterdir()))
        finally:
            tempfile.tempdir = before_dir
    for what, was, now in zip(
        ("open files", "threads", "temporary files"), before, after, strict=True
    ):
        if now - was > OWN:
            return failed(f"after {ROUND} items more there are {now - was} {what} more", ROUND)
    return passed(ROUND)


@checks("MM-76")
def forgotten(trial: Trial) -> Finding:
    """After thousands of items, no two alike, the plugin does not grow any more."""
    bench = trial.bench
    plugin = bench.make()
    config = bench.config(bench.models[0])
    make = _small(bench, plugin, config)
    if make is None:
        return inapplicable("nothing is known of which there are thousands")
    count, spent = 0, Spent()

    def serve() -> int:
        nonlocal count
        progressed()
        count += SOME
        items = map(make, range(count - SOME, count))
        return sum(run_through(plugin, item.data(bench.form), config).good for item in items)

    for each in (FIRST, MEASURED):
        sizes: list[int] = []
        while len(sizes) < MEASUREMENTS and not (
            spent.beyond(WORKED, WAITED) and _told(sizes, each, spent)
        ):
            for _ in range(each):
                run_through(plugin, make(count).data(bench.form), config)
                count += 1
                progressed()  # however busy the machine is
            gc.collect()
            sizes.append(size_of(plugin))
        if len(sizes) < MEASUREMENTS:
            why = f"{each * MEASUREMENTS} items did not fit into the time there is"
            return unjudged(why, count)
        if not growing(sizes, each):
            return passed(count)
    if ends(plugin, serve):
        return passed(count)
    # By how much differs between machines.
    return failed(f"after {count} items the plugin still grows with every item", count)


def _told(sizes: list[int], each: int, spent: Spent) -> bool:
    """Tell whether no more items are needed of a plugin that has taken its time."""
    return spent.beyond(LONGEST, LONGEST) or len(sizes) <= 1 or growing(sizes, each) is None


def _small(bench: Bench, plugin: object, config: object) -> Callable[[int], Sample] | None:
    """Return a function that makes small items, no two alike, of a kind that the plugin takes."""

    def pixels(number: int) -> npt.NDArray[Any]:
        frame = media.pixels(16, 16)
        frame[0, 0] = number >> 16, number >> 8 & 255, number & 255
        return frame

    def png(number: int) -> bytes:
        return media.encoded(Image.fromarray(pixels(number)), "PNG", compress_level=1)

    def wav(number: int) -> bytes:
        waveform = media.tone(400)
        waveform[0] = number
        return media.wav(waveform)

    def waveform(number: int) -> npt.NDArray[Any]:
        return media.floats(media.tone(400)) + number / 1e5

    def cloud(number: int) -> npt.NDArray[Any]:
        points = media.points(12)
        points[0, 0] = number
        return points

    made: dict[str, tuple[Callable[[int], Sample], ...]] = {
        "image": (
            lambda n: file("image", "PNG", "PNG", lambda: png(n)),
            lambda n: given("pixels", pixels(n)),
        ),
        "audio": (
            lambda n: file("audio", "WAV", "WAV", lambda: wav(n)),
            lambda n: given("waveform", (waveform(n), media.RATE)),
        ),
        "video": (lambda n: given("frames", pixels(n)[None]),),
        "point_cloud": (
            lambda n: file("point_cloud", "PLY", "PLY", lambda: media.ply(cloud(n))),
            lambda n: given("points", cloud(n)),
        ),
    }
    for make in made.get(bench.modality, ()):
        if run_through(plugin, make(0).data(bench.form), config).good:
            return make
    good = bench.good
    # Of others there are only the profile's, which come again.
    return (lambda n: good[n % len(good)]) if bench.modality not in made else None
