# SPDX-License-Identifier: Apache-2.0
"""Checks of prompts: vLLM takes each of them, with the plugin's own model at least."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import attrs
from vllm.renderers.inputs.preprocess import prompt_to_seq

from conformance.checking import checks
from conformance.findings import Finding, failed, passed, unjudged
from conformance.io_processor import DATA
from conformance.io_processor.bench import Bench
from conformance.io_processor.host import Documented, Surroundings
from conformance.io_processor.messages import request_of
from conformance.io_processor.trial import Trial
from conformance.io_processor.watched import Watched
from conformance.watching.comparison import difference, plain, shortened
from conformance.watching.raised import said

#: What a prompt carries for a model of other modalities.
_MEDIA = ("multi_modal_data", "multi_modal_uuids", "mm_processor_kwargs")


@attrs.frozen
class Refused:
    """Prompts of a valid request that vLLM does not take."""

    message: str
    data: Any
    needs: bool = False  #: whether another model may take them


def parsed(plugin: Watched, bench: Bench, data: object) -> Any:  # noqa: ANN401 - JSON values
    """Return data as the plugin parses them."""
    data = copy.deepcopy(data)
    if bench.generation == DATA:
        return plugin.parse_data(data)
    return plugin.parse_request(request_of(data))


def prompts_of(plugin: Watched, bench: Bench, data: object, request_id: str | None = "id-0") -> Any:  # noqa: ANN401 - any prompts
    """Return what a plugin makes of the data of a request."""
    return plugin.pre_process(prompt=parsed(plugin, bench, data), request_id=request_id)


@checks("IO-13")
def prompts(trial: Trial) -> Finding:
    """vLLM takes every prompt."""
    found = refused(trial.bench)
    if found is None:
        return passed(trial.bench.stock.given)
    if found.needs:
        return unjudged(found.message)
    return failed(found.message, case={"data": found.data})


def refused(bench: Bench) -> Refused | None:
    """Return which prompts vLLM does not take, with any model if there are such, or None."""
    first: Refused | None = None
    for data in bench.stock.originals:
        found = _refused(bench, data)
        if found is not None and not found.needs:
            return found
        first = first or found
    return first


def needed(bench: Bench, data: object) -> str | None:
    """Say which model the prompts of data need, if the harness has none that will do."""
    found = _refused(bench, data)
    return found.message if found is not None and found.needs else None


def _refused(bench: Bench, data: object) -> Refused | None:
    """Return why vLLM does not take the prompts of a request, or None."""
    try:
        given = prompts_of(bench.make(), bench, data)
    except Exception:  # noqa: BLE001 - another rule is about that
        return None
    try:
        Documented(bench.generation, bench.around).render(given)
    except Exception as error:  # noqa: BLE001 - vLLM refuses in many ways
        why = said(error, bench.path)
    else:
        return None
    if (need := _need(bench.around, given)) is None:
        what = shortened(given) if isinstance(given, list | dict | str) else repr(given)
        return Refused(f"vLLM does not take the prompts {what} of {shortened(data)}: {why}", data)
    if unsteady(bench, data):
        return None  # which other rules are about: they may grow from call to call
    return Refused(
        f"the prompts of {shortened(data)} need {need}, and the harness's {bench.around.own} will "
        f"not do ({why}): name the plugin's model in the profile, [io-processor] "
        'model = "FOLDER"',
        data,
        needs=True,
    )


def unsteady(bench: Bench, data: object = None) -> bool:
    """Tell whether two new instances make other prompts of the same data, or of the first valid."""
    data = bench.stock.valid[0] if data is None else data
    try:
        one, other = (plain(prompts_of(bench.make(), bench, data)) for _ in range(2))
        return difference(one, other) is not None
    except Exception:  # noqa: BLE001 - another rule is about that
        return False


def _need(around: Surroundings, given: object) -> str | None:
    """Say what a model must be that takes prompts, where the harness's own is too small for them.

    A model that the profile names by its folder is the plugin's own: nothing is said of that.
    """
    if around.own is None:
        return None
    try:
        each = list(prompt_to_seq(given))
    except TypeError:  # no prompts at all
        return None
    for prompt in each:
        carried = prompt if isinstance(prompt, dict) else {"prompt": prompt}
        if need := _kind(around, carried) or _size(around, carried):
            return need
    return None


def _kind(around: Surroundings, prompt: Mapping[str, Any]) -> str | None:
    """Say what kind of model takes a prompt, where the harness's own is of another."""
    config = around.config.model_config
    if any(prompt.get(name) for name in _MEDIA) and not config.is_multimodal_model:
        return "a multi-modal model"
    if "encoder_prompt" in prompt and not config.is_encoder_decoder:
        return "an encoder-decoder model"
    return None


def _size(around: Surroundings, prompt: Mapping[str, Any]) -> str | None:
    """Say how large a model must be for a prompt, where the harness's own is too small."""
    config = around.config.model_config
    tokens = prompt.get("prompt_token_ids", prompt.get("prompt"))
    if tokens == "":
        return "a model whose tokenizer makes tokens of an empty text"
    if isinstance(tokens, str):
        tokens = around.renderer.tokenizer.encode(tokens)
    if not tokens or not all(type(token) is int and token >= 0 for token in tokens):
        return None  # no model takes these
    if len(tokens) > config.max_model_len:
        return f"a model that takes {len(tokens):,} tokens"
    most = max(tokens) + 1
    return f"a vocabulary of {most:,} tokens" if most > config.get_vocab_size() else None
