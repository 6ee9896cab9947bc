# SPDX-License-Identifier: Apache-2.0
"""Requests that ask for more than the plugin, in a real engine, beside a neighbour."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from vllm.sampling_params import BeamSearchParams, SamplingParams

from conformance.engine.offline import MAX_MODEL_LEN, STEP_TOKENS, OfflineEngine, embeddings
from conformance.inputs.history import label
from conformance.ledger import Ledger
from conformance.logits import workload
from conformance.logits.findings import switched_on
from conformance.logits.keywords import sampling_params
from conformance.logits.requests import Stock
from conformance.logits.ways import Reply, difference
from conformance.settings import UsageError
from conformance.watching.interruption import OutOfTime

#: What is sent: in words, the prompt, of token ids or as vLLM takes it, and the parameters.
_Sent = tuple[str, "list[int] | dict[str, Any]", SamplingParams]

#: Starts an engine.
Start = Callable[[], OfflineEngine]

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
        {"seed": 5},
        {"presence_penalty": 2.0},
        {"frequency_penalty": 2.0},
        {"presence_penalty": -2.0, "frequency_penalty": -2.0, "repetition_penalty": 0.01},
    ]


def keep(engine: OfflineEngine, bench: Stock, ledger: Ledger, rule: str, without: Start) -> None:
    """Send combined requests, each beside a neighbour, who must get what it gets alone.

    What ends the engine is tried in one that is started ``without`` the plugin, too.
    """
    _keep(engine, bench, ledger, rule, _requests(bench), without=without)
    if not ledger.blocked and any(not _own(keywords) for keywords in bench.parameters.values()):
        _search(engine, bench, ledger, rule)


def keep_embedded(
    engine: OfflineEngine, bench: Stock, ledger: Ledger, rule: str, without: Start
) -> None:
    """Send prompts of embeddings, each beside a neighbour, to an engine that takes them."""
    _keep(engine, bench, ledger, rule, _embedded(bench), without=without)


def _own(keywords: Mapping[str, Any]) -> bool:
    """Tell whether a request asks for the plugin by arguments of the plugin's own."""
    return bool(keywords.get("extra_args"))


def _search(engine: OfflineEngine, bench: Stock, ledger: Ledger, rule: str) -> None:
    """Have beams searched, whose requests are without arguments: some plugins act on them."""
    params = BeamSearchParams(beam_width=2, max_tokens=3, ignore_eos=True)
    try:
        engine.llm.beam_search([{"prompt_token_ids": list(bench.tokens[:3])}], params)
    except OutOfTime:
        raise
    except Exception as error:  # noqa: BLE001 - whatever ends an engine
        if _came_from_runner(error):
            ledger.fail(rule, f"a beam search ends the engine: {type(error).__name__}: {error}")


def _keep(
    engine: OfflineEngine,
    bench: Stock,
    ledger: Ledger,
    rule: str,
    requests: Iterable[_Sent],
    *,
    without: Start,
) -> None:
    neighbour = workload.questions(bench, invariant=False)[-1]
    asked = sampling_params(
        {**neighbour.keywords, "temperature": 0.0, "max_tokens": NEIGHBOUR_TOKENS}, "neighbour"
    )
    ((tokens, decided),) = engine.generate_decided([neighbour.prompt], [asked])
    alone = Reply(tokens, decided)
    seen = 0
    for what, prompt, params in requests:
        if _ends_by_itself(engine, prompt, params, beside=neighbour.prompt):
            continue
        try:
            got, *_ = engine.generate([neighbour.prompt, prompt], [asked.clone(), params])
        except OutOfTime:
            raise
        except Exception as error:  # noqa: BLE001 - whatever ends an engine
            if not _came_from_runner(error):
                continue  # refused at admission
            said = f"{what} ends the engine: {type(error).__name__}: {error}"
            if _serves(without, neighbour.prompt, prompt, [asked, params]):
                ledger.fail(rule, said)
            else:
                ledger.stop(f"{said}; so it does without the plugin")
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


def _ends_by_itself(
    engine: OfflineEngine,
    prompt: Any,  # noqa: ANN401 - as vLLM takes it
    params: SamplingParams,
    *,
    beside: Sequence[int],
) -> bool:
    """Tell whether vLLM ends with a request, whatever the plugin.

    On a CPU it cannot take back what it drew for the rows of a prompt that is computed in parts.
    """
    random = params.seed is not None and bool(params.temperature)
    on_cpu = torch.device(engine.runner.device).type == "cpu"
    long = isinstance(prompt, list) and len(prompt) + len(beside) > STEP_TOKENS
    return random and on_cpu and long


def _serves(start: Start, first: Any, second: Any, params: list[SamplingParams]) -> bool:  # noqa: ANN401 - prompts as vLLM takes them
    """Tell whether another engine serves two requests together."""
    try:
        start().generate([first, second], [each.clone() for each in params])
    except OutOfTime:
        raise
    except Exception:  # noqa: BLE001 - whatever ends an engine
        return False
    return True


def _embedded(bench: Stock) -> Iterator[_Sent]:
    """Yield a request whose prompt no processor is told, for each parameter set."""
    for choice in bench.parameters:
        own = {"max_tokens": TOKENS, **bench.parameters[choice]}
        with suppress(UsageError):
            prompt = {"prompt_embeds": embeddings(bench.model, bench.tokens[:4])}
            yield f"{label(choice)} with a prompt of embeddings", prompt, sampling_params(own, "")


def _requests(bench: Stock) -> Iterator[_Sent]:
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
