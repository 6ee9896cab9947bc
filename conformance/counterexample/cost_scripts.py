# SPDX-License-Identifier: Apache-2.0
"""Programs of rules about what a step costs: they count, and do not time."""

from __future__ import annotations

_STARTED = '''\
TOKENS = $tokens


def started(keywords: list[dict], count: int, vocabulary: int, history: int = 0):
    """Return a plugin after three steps with so many requests, and the logits of the next step."""
    config = engine_config(max_num_seqs=256)
    config.model_config.hf_text_config.vocab_size = vocabulary
    plugin = Plugin(config, torch.device("cpu"), False)
    outputs = [
        [TOKENS[(row + place) % len(TOKENS)] for place in range(history)] for row in range(count)
    ]
    added = []
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
    return plugin, logits


'''

_INSTRUCTIONS = (
    _STARTED
    + '''\
def instructions(keywords: list[dict], count: int, vocabulary: int) -> int:
    """Return how many instructions of Python a step executes in which nobody comes or goes."""
    executed = 0

    def trace(frame, event, _):
        nonlocal executed
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        executed += event == "opcode"
        return trace

    with torch.inference_mode():
        plugin, logits = started(keywords, count, vocabulary)
        sys.settrace(trace)
        try:
            plugin.update_state(None)
            plugin.apply(logits)
        finally:
            sys.settrace(None)
    return executed


'''
)

IDLE = (
    _INSTRUCTIONS
    + """\
few, many = (instructions([{}], count, $vocabulary) for count in (8, 128))
if many > 1.5 * few + 100:
    print(f"FAILS: {many} instructions with 128 requests that do not opt in, {few} with 8")
    print("expected: about as many")
    sys.exit(1)
print("OK: a large idle batch costs what a small one does")
"""
)

GROWTH = (
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

MEMORY = (
    _STARTED
    + '''\
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
    plugin, logits = started(PARAMETERS, 32, $vocabulary, history=40)
    with Memory() as memory:
        plugin.update_state(None)
        plugin.apply(logits)
size = logits.numel() * logits.element_size()
if memory.peak > 16 * size:
    print(f"FAILS: a step holds {memory.peak} bytes, {memory.peak / size:.0f} times its logits")
    print("expected: at most 16 times")
    sys.exit(1)
print(f"OK: a step holds {memory.peak / size:.1f} times its logits")
'''
)
