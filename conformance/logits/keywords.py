# SPDX-License-Identifier: Apache-2.0
"""Keywords of ``SamplingParams`` as profiles have them: what is made of them, and who refuses."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from vllm.sampling_params import SamplingParams, StructuredOutputsParams

from conformance.logits import calls
from conformance.rules import nearest
from conformance.settings import UsageError
from conformance.watching.interruption import PluginHung, limited


def sampling_params(keywords: Mapping[str, Any], where: str) -> SamplingParams:
    """Build ``SamplingParams`` from the keywords of a profile.

    Raises:
        UsageError: the keywords are not those of ``SamplingParams``, or vLLM refuses them.

    """
    if not hasattr(keywords, "items"):
        raise UsageError(
            f"profile: {where} must be a table of SamplingParams keywords, not {keywords!r}."
        )
    known = SamplingParams.__struct_fields__
    for key in keywords:
        if key not in known:
            raise UsageError(
                f"profile: {where} has {key!r}, which is no field of SamplingParams."
                + nearest(key, known)
                + " What the plugin itself reads is under extra_args."
            )
    values = converted(keywords)
    built = copy.deepcopy(values)
    try:
        if isinstance(grammar := values.get("structured_outputs"), dict):
            built["structured_outputs"] = StructuredOutputsParams(**grammar)
        params = SamplingParams(**built)
    except Exception as error:  # noqa: BLE001 - any refusal is the profile's
        raise UsageError(f"profile: {where} is refused by SamplingParams: {error}") from None
    if getattr(params, "thinking_token_budget", None) is not None:
        raise UsageError(
            f"profile: {where} has thinking_token_budget, which vLLM refuses without a "
            "--reasoning-parser, and the model that plugins are tried with has none."
        )
    calls.made(params, values)
    return params


def admitted(plugin: type[Any], keywords: Mapping[str, Any]) -> bool:
    """Tell whether neither vLLM nor the plugin refuses a request."""
    try:
        params = sampling_params(keywords, "")
        with limited():
            calls.call("validate_params", plugin.validate_params, params)
    except (UsageError, calls.PluginRaised, PluginHung):
        return False
    return True


def converted(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords of a profile as ``SamplingParams`` takes them.

    TOML and JSON keys are strings; vLLM's own front end converts them in the same way.
    """
    values = dict(keywords)
    if isinstance(bias := values.get("logit_bias"), dict):
        values["logit_bias"] = {int(token): float(value) for token, value in bias.items()}
    return values


def admissible(
    invalid: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, Mapping[str, Any], SamplingParams]]:
    """Yield the requests that vLLM itself does not refuse before the plugin is asked.

    Each with its name in messages, its keywords and a fresh ``SamplingParams``.
    """
    for index, keywords in enumerate(invalid):
        name = f"invalid[{index}]"
        with suppress(UsageError):
            yield name, keywords, sampling_params(keywords, name)
