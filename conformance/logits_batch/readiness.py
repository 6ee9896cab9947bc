# SPDX-License-Identifier: Apache-2.0
"""What stands between a batch logits processor and Model Runner V2.

No verdict: vLLM 0.31 and later run Model Runner V2 where they can, and a class of the V1 interface
keeps it from starting. What would have to change is told beside the verdict.
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
_PORT = "`vllm-conformance port` writes a class for both runners to start from"


def notes(trial: Trial) -> dict[str, Any]:
    """Return what a certificate says about it; nothing for a class that serves both runners."""
    found = gaps(trial)
    return {"notes": [{"about": ABOUT, "says": found}]} if found else {}


def gaps(trial: Trial) -> list[str]:
    """Return what would change, a sentence each."""
    if _serves_slots(trial.plugin):
        return []
    bench: Bench = trial.bench
    read: set[str] = set()
    with suppress(PluginRaised, PluginMisshapen), limited():
        for choice in switched_on(bench):
            read |= _read(bench, choice)
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
    """Return which lists of a request the plugin looks into."""
    read: set[str] = set()
    prompt = TokenList([bench.tokens[0], bench.tokens[-1]], "prompt", read)
    outputs = TokenList([], "outputs", read)
    instance = bench.new()
    instance.begin(bench.params(choice), prompt, outputs)
    for step in range(bench.behind(_STEPS, choice)):
        if step:
            instance.update_state(None)
        instance.apply(bench.given(step).clone())
        outputs.append(bench.words.said(step))
    bench.retire(instance, 1)
    return read
