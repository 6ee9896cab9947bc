# SPDX-License-Identifier: Apache-2.0
"""What the generations of the logits processor interface share; knows none of them."""

from conformance.interface import CALLS_CASE, CHECK_CASE

#: The kinds of cases that both generations write.
CASES = {
    "history": frozenset(("stratum", "seed", "history", "parameters", "trouble")),
    "check": CHECK_CASE,
    "calls": CALLS_CASE,
}
