# SPDX-License-Identifier: Apache-2.0
"""Finding the plugins of a target, in a process of its own: importing one may end it, or hang."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.generations import named
from conformance.plugin import files, likeness, profile
from conformance.plugin import target as targets
from conformance.plugin.target import Plugin
from conformance.settings import Settings, UsageError
from conformance.watching.interruption import innermost
from conformance.worker import JobDied, JobHung, Patience

if TYPE_CHECKING:
    from conformance.worker import Job, Zygote

#: A line of a stack as ``faulthandler`` writes it.
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def describe(
    places: Sequence[targets.Target],
    zygote: Zygote,
    settings: Settings,
    *,
    folder: Path,
    notify: Callable[[str], None],
    at_once: int,
) -> Iterator[Plugin]:
    """Yield the plugins of targets; one whose import ended its process is broken.

    ``at_once`` is how many are imported at the same time.

    Raises:
        UsageError: a target does not exist, or has no plugin.

    """
    found = [(place, _source(place, settings)) for place in places]
    begun: list[Job] = []
    for number, (place, source) in enumerate(found):
        ahead = found[len(begun) : number + at_once]
        begun += [_begun(*later, zygote, settings, folder) for later in ahead]
        yield from _heard(begun[number], place, source, notify)


def _begun(
    place: targets.Target, source: str | None, zygote: Zygote, settings: Settings, folder: Path
) -> Job:
    """Have a target imported, whose file is the source."""
    job = zygote.fork(
        "conformance.worker.plugins:describe",
        {"wanted": [place], **_told(source, settings)},
        log=folder / "describe.log",
        directory=settings.directory,
        python_path=settings.import_path(),
        preload=("conformance.worker.installed:beforehand",),
    )
    job.put("describe", limit=math.inf)
    return job


def _heard(
    job: Job, place: targets.Target, source: str | None, notify: Callable[[str], None]
) -> Sequence[Plugin]:
    """Return the plugins of a target that is being imported.

    Raises:
        UsageError: it does not exist, or has no plugin.

    """
    name = Path(source).name if source else place.module
    patience = Patience(name, notify, lambda stack: where(stack, source))
    try:
        answer = job.wait(patience=patience)
    except JobDied as error:
        return [_unimportable(place, source, f"importing {place.module}: {error}")]
    except JobHung as error:
        said = f"importing {place.module} {error}{where(error.stack, source)}"
        return [_unimportable(place, source, said)]
    job.close()
    if isinstance(answer, UsageError):
        raise answer
    found: Sequence[Plugin] = answer
    return found


def _source(place: targets.Target, settings: Settings) -> str | None:
    """Return the file of a target's module, if it is found."""
    return files.find_file(place.module, [place.root] if place.root else settings.import_path())


def where(stack: str, path: str | None) -> str:
    """Name the line of the plugin in a stack that ``faulthandler`` wrote, innermost first."""
    frames = [(file, int(line)) for file, line in _FRAME.findall(stack)]
    place = innermost(frames, path)
    return f" (at {place})" if place else ""


def _told(source: str | None, settings: Settings) -> Mapping[str, Any]:
    """Return what a profile tells of plugins that are to be imported: variables, and interfaces.

    One in Python is loaded where plugins are.
    """
    spec, directory = settings.profile, settings.directory
    is_python = spec is not None and not (directory / spec).is_file()
    found = None if is_python else profile.choose(spec, directory, source)
    if found is None:
        return {"environment": {}, "interfaces": frozenset()}
    return {"environment": found.environment, "interfaces": found.interfaces}


def _unimportable(place: targets.Target, source: str | None, why: str) -> Plugin:
    """Describe a target whose import ended the process, or did not end."""
    generation = named(likeness.likely(place, source))
    return targets.Plugin(
        target=place.text,
        interface=generation.interface,
        generation=generation.name,
        module=place.module,
        qualname=place.qualname or "",
        root=place.root,
        path=source,
        digest=files.digest_of(source),
        version=None,
        broken=why,
    )
