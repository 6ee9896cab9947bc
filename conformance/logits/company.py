# SPDX-License-Identifier: Apache-2.0
"""Requests that ask for more than the plugin, in a real engine, beside a neighbour."""

from __future__ import annotations

import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from conformance.engine.offline import MAX_MODEL_LEN
from conformance.interruption import OutOfTime
from conformance.logits import workload
from conformance.logits.findings import label, switched_on
from conformance.logits.requests import sampling_params
from conformance.logits.ways import Reply, difference
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm.sampling_params import SamplingParams

    from conformance.engine.offline import OfflineEngine
    from conformance.ledger import Ledger
    from conformance.logits.requests import Stock

#: Tokens of each answer: the neighbour goes on when the others have finished.
NEIGHBOUR_TOKENS = 8
TOKENS = 5

#: Methods of model runners in which processors are called; they are validated elsewhere.
_RUNNING = ("execute_model", "sample_tokens")


def strongest(bench: Stock) -> list[dict[str, Any]]:
    """Return what is asked for besides, the most of it at once."""
    first, second, *_ = bench.tokens
    penalties = {"presence_penalty": 2.0, "frequency_penalty": 2.0, "repetition_penalty": 2.0}
    return [
        {"n": 2},
        {"n": 2, "seed": 5, "logprobs": 0},
        {"logprobs": 5, "prompt_logprobs": 1},
        {"logprobs": -1, "prompt_logprobs": -1},
        {"temperature": 0.0, **penalties},
        {"temperature": 2.0, "top_k": 1, "min_p": 1.0},
        {"allowed_token_ids": [first]},
        {"allowed_token_ids": [bench.vocabulary - 2], "logit_bias": {first: 100.0}},
        {"bad_words": ["a"], "min_tokens": 2},
        {"min_tokens": 4, "stop_token_ids": [first, second], "stop": ["END"]},
        {"structured_outputs": {"choice": ["a"]}},
        {"max_tokens": 1},
    ]


def keep(engine: OfflineEngine, bench: Stock, ledger: Ledger, rule: str) -> None:
    """Send combined requests, each beside a neighbour, who must get what it gets alone."""
    neighbour = workload.questions(bench, invariant=False)[-1]
    asked = sampling_params(
        {**neighbour.keywords, "temperature": 0.0, "max_tokens": NEIGHBOUR_TOKENS}, "neighbour"
    )
    ((tokens, decided),) = engine.generate_decided([neighbour.prompt], [asked])
    alone = Reply(tokens, decided)
    seen = 0
    for what, prompt, params in _requests(bench):
        try:
            got, *_ = engine.generate([neighbour.prompt, prompt], [asked.clone(), params])
        except OutOfTime:
            raise
        except Exception as error:  # noqa: BLE001 - whatever ends an engine
            if not _came_from_runner(error):
                continue  # refused at admission
            ledger.fail(rule, f"{what} ends the engine: {type(error).__name__}: {error}")
            return
        if problem := difference(alone, got, "alone"):
            ledger.fail(rule, f"beside {what} {neighbour.label} got other tokens: {problem}")
            return
        seen += 1
    again = engine.generate([neighbour.prompt], [asked])
    if problem := difference(alone, again[0], "before"):
        ledger.fail(rule, f"after such requests {neighbour.label} got other tokens: {problem}")
        return
    ledger.saw(rule, seen)


def _requests(bench: Stock) -> Iterator[tuple[str, Sequence[int], SamplingParams]]:
    """Yield each combination that vLLM's own parameters take: what it is, prompt and parameters."""
    count = len(bench.tokens)
    for number, choice in enumerate(switched_on(bench)):
        own = dict(bench.parameters[choice])
        prompt = [bench.tokens[(number + index) % count] for index in range(4)]
        for keywords in strongest(bench):
            merged = {"max_tokens": TOKENS, **keywords, **own}
            said = ", ".join(f"{key}={value!r}" for key, value in keywords.items())
            with suppress(UsageError):
                yield f"{label(choice)} with {said}", prompt, sampling_params(merged, "")
        longest = [bench.tokens[index % count] for index in range(MAX_MODEL_LEN - 1)]
        with suppress(UsageError):
            params = sampling_params({**own, "max_tokens": 1}, "")
            yield f"{label(choice)} with a prompt of {len(longest)} tokens", longest, params


def _came_from_runner(error: BaseException) -> bool:
    """Tell whether an exception was raised where the model runner calls processors."""
    cause: BaseException | None = error
    while cause is not None:
        frames = traceback.extract_tb(cause.__traceback__)
        if any(f.name in _RUNNING and "/vllm/v1/worker/" in f.filename for f in frames):
            return True
        cause = cause.__cause__
    return False
