# SPDX-License-Identifier: Apache-2.0
"""A classifier that runs in another process, or on another machine, and is asked over HTTP.

Needs ``httpx`` (the extra ``remote`` of these plugins).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import httpx

if TYPE_CHECKING:
    from reference_plugins.classifier_hook import ScoringContext


class RemoteClassifier:
    """Posts each answer to a service and compares the score that it gives with a threshold.

    It sends ``{"request_id": ..., "prompt": ..., "text": ...}`` and expects a JSON object with
    ``"score"``, a number; what else is in the object is added to the scores.
    An outage raises, and a slow service runs into the timeout: the runtime then decides by
    `blocking` and `on_error`, so neither is caught here.

    Args:
        url: where the answer is posted.
        threshold: the score from which on a blocking classifier blocks.
        blocking: whether it may replace answers.
        on_error: whether a blocking classifier that cannot be asked blocks or lets through.
        headers: sent with each request, such as a key.
        connections: to the service at once; further calls wait for one.
        name: unique in its engine.
        timeout_ms: of one call, waiting for a connection included.

    """

    def __init__(
        self,
        url: str,
        *,
        threshold: float = 0.5,
        blocking: bool = False,
        on_error: Literal["block", "allow"] = "block",
        headers: dict[str, str] | None = None,
        connections: int = 32,
        name: str = "remote",
        timeout_ms: int = 1000,
    ) -> None:
        self.name = name
        self.blocking = blocking
        self.timeout_ms = timeout_ms
        self.on_error = on_error
        self._url = httpx.URL(url)
        self._threshold = threshold
        self._headers = headers or {}
        self._limits = httpx.Limits(max_connections=connections)
        # Reading the certificates takes tens of milliseconds, which the event loop would wait for.
        self._certificates = httpx.create_ssl_context()
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Return what the service says, and whether its score blocks.

        Raises:
            httpx.HTTPError: the service cannot be reached, or answers with an error.
            ValueError: its answer is no JSON object with a score.

        """
        response = await self._open().post(
            self._url,
            json={
                "request_id": ctx.request_id,
                "prompt": ctx.prompt,
                "text": ctx.generated_text,
            },
        )
        response.raise_for_status()
        answer = response.json()
        score = answer.get("score") if isinstance(answer, dict) else None
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise ValueError(f"{self._url} answered without a score")  # noqa: TRY004 - no mistake of ours
        # The service scores; whether that blocks is decided here alone.
        return {**answer, "block": score >= self._threshold}

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _open(self) -> httpx.AsyncClient:
        # Connections belong to the loop that made them, and a hook is made before there is one.
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop = loop
            self._client = httpx.AsyncClient(
                verify=self._certificates,
                headers=self._headers,
                limits=self._limits,
                # The runtime cancels a call in half that time, whatever it waits for.
                timeout=2 * self.timeout_ms / 1000,
            )
        return self._client
