# SPDX-License-Identifier: Apache-2.0
"""Following the outputs of a request, for processors whose effect depends on them.

vLLM hands over a request's list of output token ids once, when the request joins the batch, and
appends to that list from then on. What is in it is not always final:

- With async scheduling the newest id is still on its way to the CPU in ``update_state``, and -1
  stands for it; in ``apply`` it is there. So this is read in ``apply``.
- An engine that was not told that a processor needs outputs (one loaded from an entry point) never
  fills in the ids, until the request is preempted and comes back with a list of its own.
- Where blocks of the KV cache could not be loaded, vLLM takes tokens back.
"""

from __future__ import annotations

PLACEHOLDER = -1  #: stands for a token whose id has not reached the CPU


class LiveOutputs:
    """Reads the live list of a request's output token ids, each token once."""

    def __init__(self, output_ids: list[int]) -> None:
        self._output_ids = output_ids  # the list itself: a copy would not grow
        self._read = 0  #: how many tokens have been read
        self._newest = PLACEHOLDER  #: the last one of them

    def taken_back(self) -> bool:
        """Tell whether tokens that have been read are gone; reading then begins anew."""
        read, outputs = self._read, self._output_ids
        gone = len(outputs) < read or (read > 0 and outputs[read - 1] != self._newest)
        if gone:
            self._read = 0
        return gone

    def read(self) -> list[int]:
        """Return the tokens after those read before, but for placeholders at the end."""
        read, outputs = self._read, self._output_ids
        known = len(outputs)
        while known > read and outputs[known - 1] == PLACEHOLDER:
            known -= 1
        if known > read:
            self._read, self._newest = known, outputs[known - 1]
        return outputs[read:known]

    def count(self) -> int:
        """Return how many tokens have been read."""
        return self._read

    def complete(self) -> bool:
        """Tell whether every token has been read: the newest one is no placeholder."""
        return self._read == len(self._output_ids)
