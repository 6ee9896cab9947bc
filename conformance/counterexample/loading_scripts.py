# SPDX-License-Identifier: Apache-2.0
"""The program of what loading a plugin does to the process: for every generation the same."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Any

_LOADING = '''\
MODULE, CLASS = "$module", "$name"$config


def load() -> None:
    """Import the plugin, as if for the first time, and make two instances."""
    global Plugin
    package = MODULE.rpartition(".")[0] or MODULE
    for name in [name for name in sys.modules if (name + ".").startswith(package + ".")]:
        del sys.modules[name]
    Plugin = functools.reduce(getattr, CLASS.split("."), importlib.import_module(MODULE))
    for _ in range(2):
        $new


def states(seed: int) -> dict[str, str]:
    """Seed the generators that all requests share, load the plugin; return their states."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    load()
    found = {
        "random": random.getstate(),
        "numpy.random": np.random.get_state(),
        "torch": torch.get_rng_state().tolist(),
    }
    return {name: hashlib.sha256(pickle.dumps(state)).hexdigest() for name, state in found.items()}


def shared() -> dict[str, object]:
    """Return what else all requests share."""
    return {
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "torch.get_default_device()": torch.get_default_device(),
        "torch.are_deterministic_algorithms_enabled()": (
            torch.are_deterministic_algorithms_enabled()
            and not torch.is_deterministic_algorithms_warn_only_enabled()
        ),
    }


def children() -> list[int]:
    """Return the processes that this one has started, as Linux knows them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
            if state != "Z" and int(parent) == os.getpid():
                found.append(int(entry.parent.name))
    return found


def forked(function) -> tuple[int, int]:
    """Call a function in a process of its own; return that, and where its answer is read."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, f"{json.dumps(function())}\\n".encode())
            # What Python does at its end: it waits for threads that are no daemons.
            threading._shutdown()
            atexit._run_exitfuncs()
        finally:
            os._exit(0)
    os.close(write)
    return pid, read


def answer(read: int) -> object:
    """Return what a process says."""
    with os.fdopen(read) as stream:
        return json.loads(stream.readline())


def waits(still_there) -> bool:
    """Return whether something is still there after some seconds."""
    deadline = perf_counter() + 5
    while (there := still_there()) and perf_counter() < deadline:
        threading.Event().wait(0.05)
    return there


def fail(said: str, expected: str) -> None:
    """Say what is wrong, and end the program."""
    print(f"FAILS: {said}")
    print(f"expected: {expected}")
    sys.exit(1)


def alive(pid: int) -> bool:
    """Return whether a process is there that has not ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def loaded() -> list[int]:
    """Load the plugin; return the processes that it has started and that are there."""
    load()
    return children()


# The process of an engine, which is then asked to end.
pid, read = forked(loaded)
started = answer(read)
stays = waits(lambda: os.waitpid(pid, os.WNOHANG) == (0, 0))
if stays:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
left = [child for child in started if waits(lambda: alive(child))]
for child in left:
    os.kill(child, signal.SIGKILL)
if stays:
    fail("a process that has loaded the plugin does not end", "nothing keeps it")
if left:
    fail(f"{len(left)} process(es) that the plugin started go on without it", "they end with it")

# Two processes with other seeds: what is the same in both was seeded by the plugin.
(first, read_first), (second, read_second) = forked(lambda: states(1)), forked(lambda: states(2))
ones, twos = answer(read_first), answer(read_second)
for process in (first, second):
    os.waitpid(process, 0)
for name in ones:
    if ones[name] == twos[name]:
        fail(f"loading seeds the global generator of {name}", "a generator of the plugin's own")

torch.set_default_dtype(torch.float32)
torch.set_default_device("cpu")
torch.use_deterministic_algorithms(False)
before, handlers = shared(), {}
for number in (signal.SIGTERM, signal.SIGINT):
    # The engine's handlers, with which it is ended.
    handlers[number] = lambda number, frame: os._exit(97)
    signal.signal(number, handlers[number])
load()
for name, value in shared().items():
    if value != before[name]:
        fail(f"{name} is {value} after loading", f"{before[name]}, as before")
for number, handler in handlers.items():
    pid = os.fork()
    if pid == 0:
        try:
            os.kill(os.getpid(), number)
        finally:
            os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 97:
        fail(f"{number.name} no longer comes to the handler that was there", "it is handed on")
print("OK: what all requests share is what it was")
'''

#: The program of each rule.
SCRIPTS = {"LB-40": _LOADING, "LS-37": _LOADING}


def script(case: Mapping[str, Any]) -> str:
    """Return what a program does after its imports and functions."""
    slots = case["generation"] == "logits/slot"
    return Template(SCRIPTS[case["rule"]]).substitute(
        module=case["plugin"]["module"],
        name=case["plugin"]["qualname"],
        config="" if slots else "\nCONFIG = engine_config(8, VOCABULARY)",
        new="Runner(Plugin, VOCABULARY)" if slots else 'Plugin(CONFIG, torch.device("cpu"), False)',
    )
