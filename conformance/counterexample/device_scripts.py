# SPDX-License-Identifier: Apache-2.0
"""Programs of plugins that mix tensors of the CPU with the logits: only a GPU shows that."""

from __future__ import annotations

#: What a program of ours says, and its exit status, where there is no GPU.
NEEDS_GPU, NOTHING_SHOWN = "run this program on a machine with a GPU: a CPU does not show it", 2

_GPU = f"""\
if not torch.cuda.is_available():
    print("{NEEDS_GPU}")
    sys.exit({NOTHING_SHOWN})
DEVICE = torch.device("cuda:0")


"""

_SHOWN = """\
try:
    for keywords in PARAMETERS:
        serve([keywords])
    serve(PARAMETERS[:8])
except Exception as error:
    traceback.print_exc()
    print(f"FAILS: on a GPU: {type(error).__name__}: {error}")
    print("expected: what is used together with the logits is on their device")
    sys.exit(1)
print("OK: requests are served on a GPU")
"""

_BATCH = (
    """\
CONFIG = engine_config(max_num_seqs=8)
"""
    + _GPU
    + '''\
def serve(requests: list[dict]) -> None:
    """Serve requests in one batch, as a V1 model runner on a GPU does."""
    plugin = Plugin(CONFIG, DEVICE, True)
    outputs = [[] for _ in requests]
    added = [
        (row, $make(**copy.deepcopy(keywords)), $prompt, outputs[row])
        for row, keywords in enumerate(requests)
    ]
    joining = BatchUpdate(batch_size=len(requests), removed=[], added=added, moved=[])
    with torch.inference_mode():
        for step in range($steps):
            plugin.update_state(None if step else joining)
            logits = rows(*range(step, step + len(requests))).to(DEVICE)
            result = plugin.apply(logits)
            if result.device != DEVICE:
                raise RuntimeError(f"apply returned logits on {result.device}")
            for tokens in outputs:
                tokens.append($tokens[step % len($tokens)])


'''
    + _SHOWN
)

_SLOT = (
    _GPU
    + '''\
def serve(requests: list[dict]) -> None:
    """Serve requests together, as Model Runner V2 does."""
    runner = Runner()
    slots = [7 - number for number in range(len(requests))]
    sequences = [$prompt for _ in requests]
    accepted = [
        runner.join(slot, $make(**copy.deepcopy(keywords)), sequence)
        for slot, keywords, sequence in zip(slots, requests, sequences)
    ]
    for step in range($steps):
        runner.begin_step()
        if any(accepted):  # else apply is not called
            newest = [sequence[-1] for sequence in sequences]
            positions = [len(sequence) - 1 for sequence in sequences]
            logits = rows(step).repeat(len(requests), 1).to(DEVICE)
            result = runner.apply(logits, slots=slots, tokens=newest, positions=positions)
            if result.device != DEVICE:
                raise RuntimeError(f"apply returned logits on {result.device}")
        for slot, sequence in zip(slots, sequences):
            sequence.append($tokens[step % len($tokens)])
            runner.append(slot, sequence[-1])


'''
    + _SHOWN
)

SCRIPTS = {"LB-44": _BATCH}
SLOT_SCRIPTS = {"LS-42": _SLOT}
