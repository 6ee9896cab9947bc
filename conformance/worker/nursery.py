# SPDX-License-Identifier: Apache-2.0
"""A process that has imported vLLM and forks zygotes, for many runs one after the other.

Runs that find it save the import, which is most of the time of a short one: ``vllm-conformance
warm`` keeps one at :func:`address`, and the tests of this project, which start hundreds of runs,
have one whose place the environment variable :data:`ADDRESS` tells.

A run sends its environment with its request.  Where that could lead to other imports, the nursery
refuses, and the run imports vLLM by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The environment variable that holds the path of the socket, or is empty where none is wanted.
ADDRESS = "VLLM_CONFORMANCE_NURSERY"

_MAX_MESSAGE = 1 << 17

#: Seconds after which a run imports by itself.
_PATIENCE = 10.0

#: Bytes of a temporary folder in which the socket's path is short enough.
_LONGEST = 60

_PROGRAM = "from conformance.worker import nursery; nursery.main()"

#: How the variables begin that something may read while vLLM is imported.
_READ = (
    "ATEN_", "CUDA_", "DNNL_", "HF_", "HIP_", "HSA_", "KMP_", "LD_", "MALLOC_", "MKL_", "NCCL_",
    "NUMBA_", "NUMEXPR_", "NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHON", "PYTORCH_", "RAY_",
    "ROCM_", "ROCR_", "TOKENIZERS_", "TORCH", "TPU_", "TRANSFORMERS_", "TRITON_", "VLLM_", "XLA_",
)  # fmt: skip
_NOT_READ = ("PYTHONPATH", "VLLM_CONFORMANCE_")  # the first is looked at by itself


@final
class Adopted:
    """A zygote that another process has started, with as much of ``Popen`` as its caller needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._process: psutil.Process | None
        try:
            self._process = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._process = None

    def poll(self) -> int | None:
        """Return the exit status of the process if it has ended; it is known as 0 only."""
        if self._process is None or not self._process.is_running():
            self.returncode = 0
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended.

        Raises:
            subprocess.TimeoutExpired: it has not.

        """
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except psutil.TimeoutExpired:
                raise subprocess.TimeoutExpired("a zygote", timeout or 0.0) from None
        self.returncode = 0
        return 0

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process.kill()


def address() -> Path:
    """Return where a nursery of this user listens: its own place for each state of the code."""
    state = [sys.executable, *map(str, sys.flags)]
    for name in ("conformance", "vllm"):
        found = importlib.util.find_spec(name)
        for folder in found.submodule_search_locations or () if found else ():
            # Of vLLM the versions tell; of the harness, which its developers change, every file.
            files = Path(folder).rglob("*.py") if name == "conformance" else [Path(folder)]
            state += [f"{path} {path.stat().st_mtime_ns}" for path in sorted(files)]
    digest = hashlib.sha256("\n".join(state).encode()).hexdigest()
    return _folder() / digest[:16]


def _folder() -> Path:
    """Return the folder of this user's nurseries; its path leaves room for the socket's name."""
    root = tempfile.gettempdir()
    if len(os.fsencode(root)) > _LONGEST:
        root = "/tmp"  # noqa: S108 - the folder in it is this user's alone, see `_private`
    return Path(root) / f"vllm-conformance-{os.getuid()}"


def adopt(
    preload: Sequence[str], environment: Mapping[str, str], log: int
) -> tuple[Adopted, socket.socket] | None:
    """Ask for a zygote; return it and its socket, or None if there is no nursery or it refuses.

    Args:
        preload: modules that it must have imported.
        environment: all of its environment, which may name a nursery.
        log: open file that its output goes to.

    """
    place = environment.get(ADDRESS)
    # Most runs have no nursery: the state of the code is looked at only where there may be one.
    if place == "" or not _private(_folder() if place is None else Path(place).parent):
        return None
    if place is None:
        place = str(address())
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    wanted = {
        "preload": tuple(preload),
        "environment": dict(environment),
        "directory": str(Path.cwd()),
        "flags": tuple(sys.flags),
        "executable": sys.executable,
    }
    ours.settimeout(_PATIENCE)
    try:
        ours.connect(place)
        socket.send_fds(ours, [pickle.dumps(wanted)], [log])
        pid = pickle.loads(ours.recv(_MAX_MESSAGE))  # noqa: S301 - the nursery is ours
    except (OSError, EOFError, pickle.UnpicklingError):
        pid = None
    if pid is None:
        ours.close()
        return None
    ours.settimeout(None)
    return Adopted(pid), ours


def listens(place: Path) -> bool:
    """Tell whether there is a nursery at a place."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as ours:
        try:
            ours.connect(str(place))
        except OSError:
            return False
    return True


def _private(folder: Path) -> bool:
    """Tell whether a folder belongs to this user, and no other user can write to it."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def start(
    place: Path, preload: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a nursery that ends with this process at the latest, and return at once.

    Args:
        place: where its socket will be, once it has imported everything.
        preload: modules that its zygotes have imported.
        environment: all of its environment.

    """
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return subprocess.Popen(
        # Not -m: the package that this module is in imports it.
        [sys.executable, "-P", "-c", _PROGRAM, str(place), str(os.getpid()), *preload],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def main() -> None:
    """Import modules, and fork a zygote for each connection until the parent ends."""
    from conformance.worker import zygote

    place, parent, *preload = sys.argv[1:]
    started = dict(os.environ)
    if problem := zygote.preload(preload):
        sys.exit(problem)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries zygotes that have ended
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        Path(place).unlink(missing_ok=True)
        listener.bind(place)
        listener.listen(64)
        listener.settimeout(1.0)
        while psutil.pid_exists(int(parent)):
            try:
                control, _ = listener.accept()
            except TimeoutError:
                continue
            control.settimeout(None)
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _be_born(control, preload, started)
            control.close()
    Path(place).unlink(missing_ok=True)


def _be_born(control: socket.socket, preload: Sequence[str], started: Mapping[str, str]) -> None:
    """Become the zygote that the other end asks for, or end."""
    from conformance.worker import zygote

    os.setsid()
    message, descriptors, _, _ = socket.recv_fds(control, _MAX_MESSAGE, 1)
    if not message:  # `listens` connects and sends nothing
        os._exit(0)
    wanted: dict[str, Any] = pickle.loads(message)  # noqa: S301 - by a run of ours
    folders = _folders(started, wanted["environment"])
    alike = (
        tuple(preload) == wanted["preload"]
        and sys.executable == wanted["executable"]
        and tuple(sys.flags)[:1] == wanted["flags"][:1]
        and not _changed(started, wanted["environment"])
    )
    if not alike or folders is None:
        control.send(pickle.dumps(None))
        os._exit(0)
    imports = {name: value for name, value in os.environ.items() if started.get(name) != value}
    os.environ.clear()
    os.environ.update({**wanted["environment"], **imports})
    os.chdir(wanted["directory"])
    tempfile.tempdir = None  # it is found again, in the new variables
    sys.path[:] = dict.fromkeys([*folders, *sys.path])
    os.dup2(descriptors[0], 1)
    os.dup2(descriptors[0], 2)
    os.close(descriptors[0])
    control.send(pickle.dumps(os.getpid()))
    zygote.serve(control, ())


def _changed(started: Mapping[str, str], wanted: Mapping[str, str]) -> set[str]:
    """Return the variables that differ and that an import could have read."""
    return {
        name
        for name in started.keys() | wanted.keys()
        if started.get(name) != wanted.get(name)
        and name.startswith(_READ)
        and not name.startswith(_NOT_READ)
    }


def _folders(started: Mapping[str, str], wanted: Mapping[str, str]) -> list[str] | None:
    """Return the entries of the wanted ``PYTHONPATH``; None where they could change an import."""
    ours, theirs = _path(started), _path(wanted)
    if "" in theirs or not set(ours) <= set(theirs):
        return None
    known = {name.partition(".")[0] for name in sys.modules} | {"sitecustomize", "usercustomize"}
    for folder in set(theirs) - set(ours):
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names are wanted
        except OSError:
            continue
        if any(name.endswith((".dist-info", ".egg-info")) for name in names):
            return None
        if known & {name.partition(".")[0] for name in names}:
            return None
    return theirs


def _path(environment: Mapping[str, str]) -> list[str]:
    given = environment.get("PYTHONPATH")
    return given.split(os.pathsep) if given else []
