# SPDX-License-Identifier: Apache-2.0
"""Programs of rules about what a step costs: they count, and do not time.

Each is a text of :class:`string.Template`; ``started`` is that of the generation.
"""

from __future__ import annotations

_OUTPUTS = '''\
TOKENS = $tokens


def outputs_of(count: int, history: int) -> list[list[int]]:
    """Return so many outputs for each of so many requests."""
    return [
        [TOKENS[(row + place) % len(TOKENS)] for place in range(history)] for row in range(count)
    ]


'''

_STARTED = (
    _OUTPUTS
    + '''\
def started(keywords: list[dict], count: int, vocabulary: int, history: int = 0):
    """Return the calls of a step with so many requests, after three others."""
    config = engine_config(max_num_seqs=256, vocab_size=vocabulary)
    plugin = Plugin(config, torch.device("cpu"), False)
    outputs, added = outputs_of(count, history), []
    for row in range(count):
        params = $make(**copy.deepcopy(keywords[row % len(keywords)]))
        added.append((row, params, [$token], outputs[row]))
    logits = torch.randn(count, vocabulary, generator=torch.Generator().manual_seed(0))
    for step in range(3):
        joining = BatchUpdate(batch_size=count, removed=[], added=added, moved=[])
        plugin.update_state(None if step else joining)
        plugin.apply(logits.clone())
        for row, ids in enumerate(outputs):
            ids.append(TOKENS[(row + step) % len(TOKENS)])

    def again() -> None:
        plugin.update_state(None)
        plugin.apply(logits)

    return again


'''
)

_STARTED_SLOTS = (
    _OUTPUTS
    + '''\
def started(keywords: list[dict], count: int, vocabulary: int, history: int = 0):
    """Return the calls of a step with so many requests, after three others."""
    runner, outputs = Runner(256, vocabulary), outputs_of(count, history)
    slots = [255 - row for row in range(count)]  # in the order in which vLLM gives them away
    accepted = []
    for row, slot in enumerate(slots):
        params = $make(**copy.deepcopy(keywords[row % len(keywords)]))
        accepted.append(runner.join(slot, params, [$token], outputs[row]))
    logits = torch.randn(count, vocabulary, generator=torch.Generator().manual_seed(0))
    for step in range(4):
        newest = [ids[-1] if ids else $token for ids in outputs]
        ctx = runner.context(slots, newest, [len(ids) for ids in outputs])
        if step == 3:
            break
        runner.begin_step()
        if any(accepted):  # else apply is not called
            runner.plugin.apply(logits.clone(), ctx)
        for row, ids in enumerate(outputs):
            ids.append(TOKENS[(row + step) % len(TOKENS)])
            runner.append(slots[row], ids[-1])

    def again() -> None:
        runner.plugin.apply_staged_writes()
        if any(accepted):
            runner.plugin.apply(logits, ctx)

    return again


'''
)

_INSTRUCTIONS = '''\
def instructions(keywords: list[dict], count: int, vocabulary: int) -> int:
    """Return how many instructions of Python a step executes in which nobody comes or goes."""
    with torch.inference_mode():
        again = started(keywords, count, vocabulary)
        return monitored(again) if sys.version_info >= (3, 12) else traced(again)


def monitored(again) -> int:
    """Return how many instructions a call executes; sys.settrace misses some from 3.12 on."""
    executed, monitoring = [], sys.monitoring
    monitoring.use_tool_id(3, "instructions")
    monitoring.register_callback(3, monitoring.events.INSTRUCTION, lambda *at: executed.append(at))
    monitoring.set_events(3, monitoring.events.INSTRUCTION)
    try:
        again()
    finally:
        monitoring.set_events(3, monitoring.events.NO_EVENTS)
        monitoring.free_tool_id(3)
    return len(executed)


def traced(again) -> int:
    """Return how many instructions a call executes."""
    executed = 0

    def trace(frame, event, _):
        nonlocal executed
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        executed += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        again()
    finally:
        sys.settrace(None)
    return executed


'''

_IDLE = (
    _STARTED
    + _INSTRUCTIONS
    + """\
few, many = (instructions([{}], count, $vocabulary) for count in (8, 128))
if many > 1.5 * few + 100:
    print(f"FAILS: {many} instructions with 128 requests that do not opt in, {few} with 8")
    print("expected: about as many")
    sys.exit(1)
print("OK: a large idle batch costs what a small one does")
"""
)

_GROWTH = (
    _INSTRUCTIONS
    + """\
first, second, third = (instructions(PARAMETERS, count, $vocabulary) for count in (16, 64, 256))
if third - second > 8 * max(second - first, second / 10, 100):
    print(f"FAILS: {first} instructions with 16 requests, {second} with 64, {third} with 256")
    print("expected: from 64 to 256 about four times as many more as from 16 to 64")
    sys.exit(1)

usual, large = (instructions(PARAMETERS, 8, size) for size in ($vocabulary, 4 * $vocabulary))
if large > 1.5 * usual + 100:
    print(f"FAILS: {usual} instructions, {large} with a vocabulary four times as large")
    print("expected: about as many")
    sys.exit(1)
print("OK: a step grows with its batch, and not with the vocabulary")
"""
)

_MEMORY = '''\
class Memory(TorchDispatchMode):
    """Follows the memory of the tensors that are made; a view holds what it is a view of."""

    def __init__(self) -> None:
        super().__init__()
        self.peak, self.held = 0, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        known = {tensor.untyped_storage().data_ptr() for tensor in given} - self.held.keys()
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                address = storage.data_ptr()
                if address and address not in known:
                    self.held.setdefault(address, [storage.nbytes(), 0])[1] += 1
                    weakref.finalize(leaf, self.release, address)
        self.peak = max(self.peak, sum(size for size, _ in self.held.values()))
        return result

    def release(self, address: int) -> None:
        self.held[address][1] -= 1
        if not self.held[address][1]:
            del self.held[address]


with torch.inference_mode():
    again = started(PARAMETERS, 32, $vocabulary, history=40)
    with Memory() as memory:
        again()
size = 4 * 32 * $vocabulary  # of float32 logits
if memory.peak > 16 * size:
    print(f"FAILS: a step holds {memory.peak} bytes, {memory.peak / size:.0f} times its logits")
    print("expected: at most 16 times")
    sys.exit(1)
print(f"OK: a step holds {memory.peak / size:.1f} times its logits")
'''
#: The program of each rule.
SCRIPTS = {
    "LB-35": _IDLE,
    "LB-36": _STARTED + _GROWTH,
    "LB-37": _STARTED + _MEMORY,
}
SLOT_SCRIPTS = {
    "LS-32": _STARTED_SLOTS + _GROWTH,
    "LS-33": _STARTED_SLOTS + _MEMORY,
}
