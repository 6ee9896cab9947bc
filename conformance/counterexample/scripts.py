# SPDX-License-Identifier: Apache-2.0
"""Programs of rules about more calls, or more processes, than can be written down one by one."""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING, Any

from conformance.counterexample import (
    cost_scripts,
    device_scripts,
    fragments,
    loading_scripts,
)
from conformance.counterexample.source import decoded, laid_out, literal

if TYPE_CHECKING:
    from collections.abc import Mapping

_BATCH = '''\
CPU = torch.device("cpu")


def params(number: int) -> SamplingParams:
    """Return parameters of a new request: those of the profile in turn."""
    return $make(**copy.deepcopy(PARAMETERS[number % len(PARAMETERS)]))


def serve(plugin: Plugin, count: int) -> list[list[int]]:
    """Fill an empty batch with this many requests; return their output lists."""
    outputs = [[] for _ in range(count)]
    added = [(row, params(row), [$token], outputs[row]) for row in range(count)]
    plugin.update_state(BatchUpdate(batch_size=count, removed=[], added=added, moved=[]))
    return outputs


'''

SERVED = '''\
def served(requests: list[dict]) -> dict[str, torch.Tensor]:
    """Return the rows that each request gets alone in the V1 model runner, by step."""
    found = {}
    for keywords in requests:
        plugin = Plugin(CONFIG, torch.device("cpu"), False)
        prompt, outputs = $prompt, []
        added = [(0, $make(**copy.deepcopy(keywords)), prompt, outputs)]
        with torch.inference_mode():
            plugin.update_state(BatchUpdate(batch_size=1, removed=[], added=added, moved=[]))
            for step in range($steps):
                if step:
                    plugin.update_state(None)
                found[f"step {step} of {keywords}"] = plugin.apply(rows(step))[0].clone()
                outputs.append($tokens[step % len($tokens)])
    return found


'''

_MEMORY = (
    """\
# How many requests come and go before each measurement.
ROUND = 2000

CONFIG = engine_config(max_num_seqs=8)
"""
    + _BATCH
    + '''\
def go_through(plugin: Plugin, logits: torch.Tensor, numbers: Iterator[int], applies: bool) -> None:
    """Take requests through a batch of eight and out again; half of them change in each step."""
    live = [[] for _ in range(8)]
    for step in range(ROUND // 4):
        added = []
        for row in range(4 if step else 8):
            live[row] = []
            # No two requests have the same prompt.
            number = next(numbers)
            prompt = [$token, 3 + number % 400, 3 + number // 400]
            added.append((row, params(number), prompt, live[row]))
        plugin.update_state(BatchUpdate(batch_size=8, removed=[], added=added, moved=[]))
        if applies:
            plugin.apply(logits.clone())
        for outputs in live:
            outputs.append($tokens[step % len($tokens)])
    removed = [7, 6, 5, 4, 3, 2, 1, 0]
    plugin.update_state(BatchUpdate(batch_size=0, removed=removed, added=[], moved=[]))
    plugin.update_state(None)


'''
    + fragments.GROWTH
)

_IDLE = (
    """\
CONFIG = engine_config(max_num_seqs=8)
"""
    + _BATCH
    + '''\
class Work(TorchDispatchMode):
    """Notes the operations on tensors as large as the logits; views cost nothing."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.operations = size, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        sizes = [tensor.numel() for tensor in tensors]
        if not function.is_view and self.size in sizes and 0 not in sizes:
            self.operations.append(str(function.overloadpacket))
        return result


ON, OFF = $on, $off
plugin = Plugin(CONFIG, CPU, False)
with torch.inference_mode():
    for when in ("from the start", "after one that did has finished"):
        if when != "from the start":
            added = [(0, params(ON), [$token], [])]
            plugin.update_state(BatchUpdate(batch_size=1, removed=[], added=added, moved=[]))
            plugin.apply(rows(0))
            plugin.update_state(BatchUpdate(batch_size=0, removed=[0], added=[], moved=[]))
        added = [(row, params(number), [$token], []) for row, number in enumerate(OFF)]
        plugin.update_state(BatchUpdate(batch_size=len(OFF), removed=[], added=added, moved=[]))
        logits = rows(*range(len(OFF)))
        with Work(logits.numel()) as work:
            result = plugin.apply(logits)
        removed = list(range(len(OFF) - 1, -1, -1))
        plugin.update_state(BatchUpdate(batch_size=0, removed=removed, added=[], moved=[]))
        if result is not logits and result.data_ptr() != logits.data_ptr():
            print(f"FAILS: with no opted-in request ({when}), apply returns another tensor")
            print("expected: the tensor that it was given")
            sys.exit(1)
        if work.operations:
            print(f"FAILS: with no opted-in request ({when}), apply works on all logits:")
            print(f"  {', '.join(dict.fromkeys(work.operations))}")
            print("expected: no operation on them")
            sys.exit(1)
print("OK: with no opted-in request, apply returns its argument and does not work on it")
'''
)

_FULL = (
    _BATCH
    + '''\
def last_rows(max_num_seqs: int, count: int) -> torch.Tensor:
    """Return the rows of a batch of this many requests in its second step."""
    plugin = Plugin(engine_config(max_num_seqs), CPU, False)
    with torch.inference_mode():
        logits = rows(*(row % len(PARAMETERS) for row in range(count)))
        outputs = serve(plugin, count)
        plugin.apply(logits.clone())
        for tokens in outputs:
            tokens.append($token)
        plugin.update_state(None)
        return plugin.apply(logits.clone())


few = last_rows(8, len(PARAMETERS))
try:
    full = last_rows(512, 300)
except Exception as error:
    traceback.print_exc()
    print(f"FAILS: with 300 requests and max_num_seqs=512: {type(error).__name__}: {error}")
    print("expected: the rows of a small batch, again and again")
    sys.exit(1)

for row in range(300):
    got, expected = full[row], few[row % len(PARAMETERS)]
    close = torch.isclose(got, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    wrong = (~close).nonzero().flatten().tolist()
    if wrong:
        print(f"FAILS: row {row} of 300 is not the one of the same request in a small batch")
        for token in wrong[:8]:
            print(f"  token {token}: got {got[token]:.6g}, expected {expected[token]:.6g}")
        sys.exit(1)
print("OK: the rows of a batch of 300 are those of a small one")
'''
)

CONFIG = """\
CONFIG = engine_config(max_num_seqs=8)


"""

SCRIPTS = {
    "LB-27": _MEMORY,
    "LB-28": _IDLE,
    "LB-30": _FULL,
    "LB-31": CONFIG + SERVED + fragments.COMPARE + fragments.ADMISSION,
    "LB-33": CONFIG + SERVED + fragments.COMPARE + fragments.RANKS,
    **cost_scripts.SCRIPTS,
    **device_scripts.SCRIPTS,
    **loading_scripts.SCRIPTS,
}

#: Programs in which every request opts in.
_OPTED_IN = frozenset({"LB-36", "LB-37"})

#: Programs that cannot be tried here: they start others of their own, or need a GPU.
FILES_ONLY = frozenset({"LB-33", *device_scripts.SCRIPTS})


def script(case: Mapping[str, Any], *, bare: bool) -> str:
    """Return what a program does after its imports and functions."""
    choices = [entry["choice"][0] for entry in case["parameters"]]
    tokens = case["logits"]["tokens"]
    entries = case["parameters"]
    if case["rule"] in _OPTED_IN:
        entries = [entry for entry in entries if entry["choice"][0] == "on"]
    values = [decoded(entry["keywords"]) for entry in entries]
    lines = laid_out(literal(values), before="PARAMETERS = ")
    if case["rule"] == "LB-31":
        lines += laid_out(literal(decoded(case["expect"]["invalid"])), before="INVALID = ")
    words = {
        "make": "SamplingParams" if bare else "request",
        "token": tokens[0],
        "tokens": tokens,
        "prompt": case["logits"].get("prompt", [tokens[0], tokens[-1]]),
        "steps": 6,
        "vocabulary": case["logits"]["vocabulary"],
        "new": "Plugin(CONFIG, CPU, False)",
        "on": choices.index("on") if "on" in choices else 0,
        "off": [number for number, choice in enumerate(choices) if choice == "off"],
    }
    return "\n".join(lines) + "\n" + Template(SCRIPTS[case["rule"]]).substitute(words)
