# SPDX-License-Identifier: Apache-2.0
"""``io/request`` and ``io/data``: IO processor plugins of pooling models."""

from __future__ import annotations

from conformance.io_processor.catalogue import DATA_RULES, REQUEST_RULES
from conformance.rules import Generation

generations = (
    Generation(
        interface="io-processor",
        name="io/data",
        title="IO processor (parse_data, vLLM 0.17 and later)",
        loading_rule="IO-01",
        survival_rule="IO-37",
        rules=DATA_RULES,
        suite="conformance.io_processor.suites.data",
    ),
    Generation(
        interface="io-processor",
        name="io/request",
        title="IO processor (parse_request, vLLM 0.10 to 0.28)",
        loading_rule="IO-01",
        survival_rule="IO-37",
        rules=REQUEST_RULES,
        suite="conformance.io_processor.suites.request",
    ),
)
