# SPDX-License-Identifier: Apache-2.0
"""What only a model can tell: the outputs of its own pooler."""

from __future__ import annotations

from conformance.findings import Finding
from conformance.verdict import Verdict

UNKNOWN = "what the model's own pooler returns is not known here"


def made_up(trouble: str) -> Finding:
    """Return that trouble proves nothing, since an output was made up for the plugin."""
    return Finding(
        Verdict.NOT_VERIFIED,
        message=f"{trouble}, on an output that the simulator made up, since only a model can tell "
        "what its own pooler returns: offline evidence shows it, with the plugin's model in "
        "[io-processor] model",
    )
