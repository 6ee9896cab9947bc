# SPDX-License-Identifier: Apache-2.0
"""The rules of IO processor plugins: most hold for both generations."""

from __future__ import annotations

from conformance.io_processor.catalogue import loading, outputs, parsing, prompts, traffic

#: Those of the documented generation alone.
_REQUEST_ONLY = (loading.RENDERER, parsing.FORMS, outputs.RESPONSE)

REQUEST_RULES = (
    loading.LOADS,
    loading.CONSTRUCTOR,
    loading.RENDERER,
    loading.SELECTION,
    loading.SIGNATURES,
    loading.AWAITABLE,
    parsing.ANSWERS,
    parsing.REFUSES,
    parsing.HOSTILE,
    parsing.ENDURES,
    parsing.EARLY,
    parsing.PURE,
    parsing.FORMS,
    prompts.PROMPTS,
    prompts.PARAMS,
    prompts.KEPT,
    prompts.FRESH,
    outputs.ORDER,
    outputs.SYNC,
    outputs.USED,
    outputs.ERRORS,
    outputs.LEFT,
    outputs.SERIALISABLE,
    outputs.RESPONSE,
    outputs.STEADY,
    outputs.SAME,
    traffic.SEQUENCE,
    traffic.INTERLEAVED,
    traffic.SAME_IDS,
    traffic.NO_IDS,
    traffic.HARMLESS,
    traffic.THREADS,
    traffic.WAITING,
    traffic.WORKING,
    traffic.CANCELLED,
    traffic.FORGETS,
    traffic.ABANDONED,
    loading.SURVIVES,
)

DATA_RULES = tuple(rule for rule in REQUEST_RULES if rule not in _REQUEST_ONLY)
