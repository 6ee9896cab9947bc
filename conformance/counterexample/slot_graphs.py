# SPDX-License-Identifier: Apache-2.0
"""The program of a slot plugin that fails where a CUDA graph pads the batch."""

from __future__ import annotations

from conformance.counterexample import fragments

PADDED = (
    '''\
class Graphs(Runner):
    """Runs a batch of three by a CUDA graph for four, as soon as all of its requests decode."""

    decoding = False

    def context(self, slots: list, tokens: list, positions: list) -> LogitsContext:
        """Return what the plugin is told about the rows; zeros follow the lengths."""
        ctx = Runner.context(slots, tokens, positions)
        if not self.decoding:
            return ctx
        lengths = np.append(ctx.seq_lens_upper_bound_np, np.int32(0))
        return dataclasses.replace(ctx, seq_lens_upper_bound_np=lengths)


def together(runner: Runner) -> dict[str, torch.Tensor]:
    """Serve the requests as one batch; return their rows."""
    slots, sequences, found = [7, 6, 5], [$prompt for _ in PARAMETERS], {}
    accepted = [
        runner.join(slot, $make(**copy.deepcopy(keywords)), sequence)
        for slot, keywords, sequence in zip(slots, PARAMETERS, sequences)
    ]
    for step in range($steps):
        runner.begin_step()
        runner.decoding = step > 0
        logits = rows(step).repeat(3, 1)
        if any(accepted):  # else apply is not called
            newest = [sequence[-1] for sequence in sequences]
            positions = [len(sequence) - 1 for sequence in sequences]
            logits = runner.apply(logits, slots=slots, tokens=newest, positions=positions)
        for number, keywords in enumerate(PARAMETERS):
            found[f"step {step} of request {number}, {keywords},"] = logits[number].clone()
        for slot, sequence in zip(slots, sequences):
            sequence.append($tokens[step % len($tokens)])
            runner.append(slot, sequence[-1])
    return found


'''
    + fragments.COMPARE
    + """\
expected = together(Runner())
try:
    got = together(Graphs())
except Exception as error:
    traceback.print_exc()
    print(f"FAILS: in a padded batch: {type(error).__name__}: {error}")
    print("expected: it raises nothing, and the rows are those of a batch that is not padded")
    sys.exit(1)
compare(got, expected, "a padded batch")
print("OK: the rows of a padded batch are those of one that is not")
"""
)
