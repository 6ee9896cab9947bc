# SPDX-License-Identifier: Apache-2.0
"""The outputs of one request, on their way from the engine to the caller.

An output passes as it is until a completion finishes in it; then the hooks are asked, and what
they say decides what goes out in its place.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook.contract import UNSCORED
from reference_plugins.classifier_hook.replacement import (
    annotate,
    ended,
    keep_prompt,
    part,
    replaced,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence

    from vllm.outputs import CompletionOutput, RequestOutput

    from reference_plugins.classifier_hook.contract import Entry, Verdict
    from reference_plugins.classifier_hook.dispatch import Dispatcher
    from reference_plugins.classifier_hook.scope import Scope
    from reference_plugins.classifier_hook.transcript import Transcript


@dataclass(slots=True, kw_only=True)
class Request:
    """One call of ``generate``, and how its completions are to be scored."""

    entries: tuple[Entry, ...]
    dispatcher: Dispatcher
    transcript: Transcript
    completions: int  #: ``n``
    hold: bool  #: whether nothing goes out before a blocking hook has decided
    refusal: str
    scope: Scope | None = None
    call: int = 0  #: which of the scope's calls it is
    #: scores by the names of the hooks, and where ``n`` is more than one by completion
    scores: dict[str, Any] = field(default_factory=dict)

    @property
    def closes(self) -> bool:
        """Whether text that was not scored is to be kept back."""
        return any(entry.closes for entry in self.entries)

    async def verdict(self, output: RequestOutput, completion: CompletionOutput) -> Verdict | None:
        """Ask the hooks about a finished completion; None if it is not to be scored."""
        if completion.finish_reason in UNSCORED:
            return None
        context = self.transcript.context(output, completion)
        return await self.dispatcher.start(self.entries, context).verdict()

    def released(
        self,
        output: RequestOutput,
        finished: list[CompletionOutput],
        verdicts: Sequence[Verdict | None],
        held: Sequence[RequestOutput],
    ) -> list[RequestOutput]:
        """Return what goes out for an output all of whose completions have finished.

        Args:
            output: holds the completions.
            finished: they themselves.
            verdicts: one for each of them.
            held: outputs of the same completions that were kept back.

        """
        settled = [self._settle(*pair) for pair in zip(finished, verdicts, strict=True)]
        if any(one is not own for (one, _), own in zip(settled, finished, strict=True)):
            output = part(output, [one for one, _ in settled], finished=output.finished)
        if all(content for _, content in settled):
            self._annotate(output)
            return [*held, output]
        # Another engine could read from there what was replaced.
        output.kv_transfer_params = None
        if held:
            keep_prompt(output, held[0])
        self._annotate(output)
        return [output]

    def _settle(
        self, completion: CompletionOutput, verdict: Verdict | None
    ) -> tuple[CompletionOutput, bool]:
        """Return what goes out for a finished completion, and whether it has its own content."""
        if verdict is None:
            reason = completion.finish_reason
            if reason not in UNSCORED:
                reason = "abort"  # its request was aborted while hooks ran
            elif not self.closes:
                return completion, True
            return ended(completion, reason, content=not self.closes), not self.closes
        self._keep(completion.index, verdict)
        if verdict.blocker is None:
            return completion, True
        return replaced(completion, verdict.replacement or self.refusal), False

    def _keep(self, index: int, verdict: Verdict) -> None:
        for name, scores in verdict.scores.items():
            if self.completions == 1:
                self.scores[name] = scores
            else:
                self.scores.setdefault(name, {})[index] = scores
        if self.scope is not None:
            self.scope.scores[self.call * self.completions + index] = verdict.scores

    def _annotate(self, output: RequestOutput) -> None:
        """Give an output the scores so far, in containers of its own."""
        if self.scores:
            several = self.completions > 1
            annotate(output, {k: dict(v) if several else v for k, v in self.scores.items()})


def scored(
    outputs: AsyncGenerator[RequestOutput, None], request: Request
) -> AsyncGenerator[RequestOutput, None]:
    """Return the outputs of a request, with finished completions scored and, if blocked, replaced.

    Closing it, or cancelling who reads it, cancels the hooks at work and closes *outputs*, which
    aborts the request in the engine.
    """
    if request.completions > 1 and request.transcript.streams:
        return _interleaved(outputs, request)
    return _in_order(outputs, request)


async def _in_order(
    outputs: AsyncGenerator[RequestOutput, None], request: Request
) -> AsyncGenerator[RequestOutput, None]:
    """Pass on one completion, or several that arrive together."""
    held: list[RequestOutput] = []
    try:
        async for output in outputs:
            finished = request.transcript.read(output)
            if finished:
                said = await verdicts(request, output, finished)
                for out in request.released(output, finished, said, held):
                    yield out
                held.clear()
            elif request.hold:
                held.append(output)
            else:
                yield output
    finally:
        await outputs.aclose()


async def verdicts(
    request: Request, output: RequestOutput, finished: list[CompletionOutput]
) -> list[Verdict | None]:
    """Ask the hooks about completions that finished in one output, at once."""
    if len(finished) == 1:
        return [await request.verdict(output, finished[0])]
    return await asyncio.gather(*(request.verdict(output, one) for one in finished))


async def _interleaved(
    outputs: AsyncGenerator[RequestOutput, None], request: Request
) -> AsyncGenerator[RequestOutput, None]:
    """Pass on several completions that end at different times.

    While hooks decide about one, the others go on: only its own last output waits.
    """
    several = _Several(request)
    reading: asyncio.Task[RequestOutput | None] | None = None
    over = False
    try:
        while not over or several.deciding:
            if not several.deciding:
                # The usual case: no task for an output, unless one was begun while hooks decided.
                waited, reading = reading or _next(outputs), None
                read = await waited
                over = read is None
            else:
                if not over and reading is None:
                    reading = asyncio.ensure_future(_next(outputs))
                tasks = {*several.deciding, *([reading] if reading else [])}
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for out in several.released(done):
                    yield out
                read = None
                if reading in done:
                    read, reading = await reading, None
                    over = read is None
            if read is not None and (going_on := several.read(read)) is not None:
                yield going_on
    finally:
        tasks = {*several.deciding, *([reading] if reading else [])}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await outputs.aclose()


class _Several:
    """Completions of one request, some going on, some waiting for a decision."""

    def __init__(self, request: Request) -> None:
        self.deciding: dict[
            asyncio.Task[Verdict | None], tuple[RequestOutput, CompletionOutput]
        ] = {}
        self._request = request
        self._held: dict[int, list[RequestOutput]] = {}
        self._complete = False  #: whether the last output has been read

    def read(self, output: RequestOutput) -> RequestOutput | None:
        """Take in an output, have hooks decide about what finished, and return what goes on."""
        self._complete = output.finished
        finished = self._request.transcript.read(output)
        for completion in finished:
            task = asyncio.ensure_future(self._request.verdict(output, completion))
            self.deciding[task] = (output, completion)
        going_on = [one for one in output.outputs if one.finish_reason is None]
        if self._request.hold:
            for one in going_on:
                kept = part(output, [one], finished=False)
                self._held.setdefault(one.index, []).append(kept)
            return None
        if finished and going_on:
            return part(output, going_on, finished=False)
        return output if going_on else None

    def released(self, done: Collection[asyncio.Future[Any]]) -> list[RequestOutput]:
        """Return what goes out for those completions whose decisions are done."""
        out: list[RequestOutput] = []
        for task in [task for task in self.deciding if task in done]:
            output, completion = self.deciding.pop(task)
            # Only the last of all outputs says that the request has finished.
            last = part(output, [completion], finished=self._complete and not self.deciding)
            held = self._held.pop(completion.index, [])
            out += self._request.released(last, [completion], [task.result()], held)
        return out


async def _next(outputs: AsyncGenerator[RequestOutput, None]) -> RequestOutput | None:
    return await anext(outputs, None)
