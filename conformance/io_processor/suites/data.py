# SPDX-License-Identifier: Apache-2.0
"""Plugins with ``parse_data``: vLLM 0.17 and later."""

from __future__ import annotations

from functools import partial

from conformance.io_processor import DATA
from conformance.io_processor.suites import shared
from conformance.suite import Suite


def _recognises(cls: type) -> bool:
    # One that has neither is of this generation, and fails where it is asked to parse.
    neither = not shared.defines(cls, "parse_request")
    return shared.is_plugin(cls) and (shared.defines(cls, "parse_data") or neither)


SUITE = Suite(
    base=shared.BASE,
    recognises=_recognises,
    meant=shared.meant,
    open_trial=partial(shared.open_trial, DATA),
    replay=partial(shared.replay, DATA),
    maker=partial(shared.maker, DATA),
    own_host=shared.own_host,
    shares=("IO-39", "IO-02"),
    loading=shared.loading,
    serves=True,
    forget=shared.forget,
)
