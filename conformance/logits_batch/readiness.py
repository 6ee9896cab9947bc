# SPDX-License-Identifier: Apache-2.0
"""What vLLM does not do for a batch logits processor, and its author can plan for.

No verdict: vLLM 0.31 and later run Model Runner V2 where they can, and a class of the V1 interface
keeps it from starting; and a processor that is an entry point alone is not told which tokens were
sampled where scheduling is asynchronous. This is told beside the verdict.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.findings import switched_on
from conformance.logits.trial import Trial
from conformance.logits.waiting import TokenList
from conformance.logits_batch.bench import Bench
from conformance.watching.interruption import limited

ABOUT = "Model Runner V2, the default of vLLM 0.31 and later, refuses this class; what would change"

#: Steps for which it is watched what a request's lists are read for.
_STEPS = 4

_ALWAYS = (
    (
        "state is kept by row and moved with the batch; there it is kept by slot, set in "
        "add_request(req_idx, params), and rows are found through ctx.expanded_idx_mapping"
    ),
    "there is no call when a request finishes: add_request overwrites what the slot held",
)
_READS = {
    "prompt": "it reads the prompt list; there the tokens are on the device only, in "
    "req_states.all_token_ids[slot, :prompt_len]",
    "outputs": "it reads the output list; there outputs are on the device only, in "
    "req_states.all_token_ids[slot, prompt_len:total_len], and this step's drafts in "
    "ctx.input_ids",
}
_INVARIANT = (
    "it claims argmax invariance; there no step is skipped for greedy requests, and it runs before "
    "the temperature is applied, not after"
)
_BEFORE_PENALTIES = "it runs before penalties; there it runs after them"
#: Of vLLM issue 52461.
ABOUT_LOADING = (
    "loaded by its entry point alone, it never sees which tokens were sampled where vLLM schedules "
    "asynchronously, its default on a GPU"
)
_LOADING = (
    "it reads the output list, whose ids are then -1 to the end of a request (vLLM issue 52461)",
    (
        "name the class in --logits-processors, without an entry point in the package, or start "
        "servers with --no-async-scheduling"
    ),
)
_PORT = "`vllm-conformance port` writes a class for both runners to start from"


class _Tokens(TokenList):
    """A list of tokens whose length says nothing of them: hosts tell that in other ways."""

    def __len__(self) -> int:
        """Return the number of tokens."""
        return list.__len__(self)


def notes(trial: Trial) -> dict[str, Any]:
    """Return what a certificate says about it."""
    bench: Bench = trial.bench
    read: set[str] = set()
    with suppress(PluginRaised, PluginMisshapen), limited():
        for choice in switched_on(bench):
            read |= _read(bench, choice)
    found = [{"about": ABOUT, "says": gaps}] if (gaps := _gaps(trial, read)) else []
    if "outputs" in read:
        found.append({"about": ABOUT_LOADING, "says": [*_LOADING]})
    return {"notes": found} if found else {}


def _gaps(trial: Trial, read: set[str]) -> list[str]:
    """Return what would change for Model Runner V2; nothing for a class that serves both."""
    if _serves_slots(trial.plugin):
        return []
    bench: Bench = trial.bench
    found = [*_ALWAYS, *(_READS[name] for name in _READS if name in read)]
    found.append(_INVARIANT if bench.invariant else _BEFORE_PENALTIES)
    return [*found, _PORT]


def _serves_slots(plugin: type) -> bool:
    try:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor
    except ImportError:
        return True  # a vLLM without Model Runner V2's interface
    return issubclass(plugin, LogitsProcessor)


def _read(bench: Bench, choice: Any) -> set[str]:  # noqa: ANN401 - a choice of the history
    """Return the lists of a request in which the plugin looks at tokens, and not only how many."""
    read: set[str] = set()
    prompt = _Tokens([bench.tokens[0], bench.tokens[-1]], "prompt", read)
    outputs = _Tokens([], "outputs", read)
    instance = bench.new()
    instance.begin(bench.params(choice), prompt, outputs)
    for step in range(bench.behind(_STEPS, choice)):
        if step:
            instance.update_state(None)
        (row,) = instance.apply(bench.given(step).clone())
        outputs.append(bench.takes(row, bench.words.said(step)))
    bench.retire(instance, 1)
    return read
