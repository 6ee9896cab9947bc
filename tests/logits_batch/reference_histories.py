# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: reference plugins that follow outputs, against searches of all tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from conformance.engine.models import tiny_llama
from conformance.logits.configuration import vllm_config
from conformance.logits_batch.host import CPU
from reference_plugins.logits_batch.no_repeat_ngram import NoRepeatNgramLogitsProcessor
from reference_plugins.logits_batch.thinking_budget import ThinkingBudgetLogitsProcessor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: The row that a request must get, for its tokens so far and its logits ``[vocabulary]``.
    Expected = Callable[[list[int], torch.Tensor], torch.Tensor]

VOCABULARY = 6  #: few tokens, so that everything happens within a few steps
LOST = 0  #: stands for a token whose id never reaches the output list


def made(plugin: type[LogitsProcessor]) -> Any:  # noqa: ANN401 - vLLM's classes are Any here
    """Return an instance, made as an engine makes it."""
    return plugin(vllm_config(str(tiny_llama())), CPU, False)


def asked(**arguments: object) -> SamplingParams:
    """Return the parameters of a request with ``extra_args``."""
    return SamplingParams(extra_args=arguments)


@attrs.define
class Followed:
    """One request in a batch with an unrelated one, in the way an engine schedules it."""

    plugin: Any
    params: SamplingParams
    prompt: list[int] | None
    asynchronous: bool
    real: list[int] = attrs.field(factory=list)  #: outputs as they are
    live: list[int] = attrs.field(factory=list)  #: outputs as the plugin is shown them
    row: int = 0
    update: BatchUpdate | None = None

    def __attrs_post_init__(self) -> None:
        """Join, with the other request in row 1."""
        added = [(0, self.params, self.prompt, self.live), (1, SamplingParams(), [0], [])]
        self.update = BatchUpdate(2, [], added, [])

    def do(self, event: str | int) -> None:
        """Let something happen between two steps."""
        if event == "resume":
            self.live = list(self.real)
            if self.row == 1:
                left = BatchUpdate(1, [1], [], [])
            else:
                left = BatchUpdate(1, [], [], [(1, 0, MoveDirectionality.UNIDIRECTIONAL)])
            self.step(torch.zeros(1, VOCABULARY), left)
            self.row = 1
            self.update = BatchUpdate(2, [], [(1, self.params, self.prompt, self.live)], [])
        elif event == "swap":
            self.update = BatchUpdate(2, [], [], [(0, 1, MoveDirectionality.SWAP)])
            self.row = 1 - self.row
        elif event == "take back":
            del self.real[-2:], self.live[-2:]
        elif event == "rewrite" and self.real and self.real[-1] != LOST:
            self.real[-1] = self.live[-1] = 1 + self.real[-1] % 3
        elif event == "lose":  # an id that never reaches the list
            self.real.append(LOST)
            self.live.append(-1)
        elif isinstance(event, int):
            self.real.append(event)
            self.live.append(-1 if self.asynchronous else event)

    def step(self, logits: torch.Tensor, update: BatchUpdate | None) -> torch.Tensor:
        """Run one step; the id of the newest token arrives in the middle of it."""
        self.plugin.update_state(update)
        if self.live and self.real[-1] != LOST:
            self.live[-1] = self.real[-1]
        result: torch.Tensor = self.plugin.apply(logits)
        return result


TOKENS = st.integers(1, 3)
CHANGES = ("resume", "swap", "take back", "rewrite", "lose")
EVENTS = st.lists(
    st.one_of(TOKENS, TOKENS, st.sampled_from(CHANGES)),
    min_size=8,
    max_size=30,
)
PROMPTS = st.none() | st.lists(TOKENS, max_size=6)


def follow(followed: Followed, events: Sequence[str | int], expected: Expected) -> int:
    """Check the row of a request after each event; return in how many steps it was changed."""
    generator = torch.Generator().manual_seed(len(events))
    changed = 0
    for event in (None, *events):
        if event is not None:
            followed.do(event)
        before = torch.randn(2, VOCABULARY, generator=generator)
        # As a grammar does: in some steps few tokens are left, or none.
        share = len(followed.real) % 3 / 3
        before[torch.rand(before.shape, generator=generator) < share] = -torch.inf
        after = followed.step(before.clone(), followed.update)
        followed.update = None
        row = followed.row
        wanted = before.clone()
        wanted[row] = expected([*(followed.prompt or []), *followed.live], before[row])
        assert torch.equal(after, wanted), (event, followed, before, after, wanted)
        changed += not torch.equal(before, after)
    return changed


def n_gram_bans_equal_an_obvious_search() -> None:
    """Masked tokens are those that a search of the whole history finds."""
    changed = 0

    @settings(max_examples=300, deadline=None, database=None, derandomize=True)
    @given(
        size=st.integers(2, 4),
        with_prompt=st.booleans(),
        prompt=PROMPTS,
        events=EVENTS,
        asynchronous=st.booleans(),
    )
    def check(
        *,
        size: int,
        with_prompt: bool,
        prompt: list[int] | None,
        events: list[str | int],
        asynchronous: bool,
    ) -> None:
        nonlocal changed
        before = size - 1
        ignored = 0 if with_prompt else len(prompt or [])

        def expected(history: list[int], row: torch.Tensor) -> torch.Tensor:
            known = history[ignored:]
            run = known[len(known) - before :] if len(known) >= before else [-1]
            banned = [
                known[start + before]
                for start in range(len(known) - before)
                if known[start : start + before] == run and -1 not in known[start : start + size]
            ]
            masked = row.clone()
            masked[[token for token in banned if -1 not in run]] = -torch.inf
            return row if masked.isneginf().all() else masked

        over = "all" if with_prompt else "outputs"
        params = asked(no_repeat_ngram=size, no_repeat_ngram_history=over)
        followed = Followed(made(NoRepeatNgramLogitsProcessor), params, prompt, asynchronous)
        changed += follow(followed, events, expected)

    check()
    assert changed > 300, changed


def forced_markers_equal_an_obvious_search() -> None:
    """A forced token is the one that reading all tokens from the first one on gives."""
    markers = st.lists(TOKENS, min_size=1, max_size=3)
    changed = 0

    @settings(max_examples=300, deadline=None, database=None, derandomize=True)
    @given(
        budget=st.integers(0, 4),
        start=markers,
        end=markers,
        prompt=PROMPTS,
        events=EVENTS,
        asynchronous=st.booleans(),
    )
    def check(
        *,
        budget: int,
        start: list[int],
        end: list[int],
        prompt: list[int] | None,
        events: list[str | int],
        asynchronous: bool,
    ) -> None:
        nonlocal changed

        def expected(history: list[int], row: torch.Tensor) -> torch.Tensor:
            token = _next_of_marker(history, budget, start, end)
            if token is None or row[token] == -torch.inf:
                return row
            masked = torch.full_like(row, -torch.inf)
            masked[token] = row[token]
            return masked

        params = asked(thinking_budget=budget, thinking_start=start, thinking_end=end)
        followed = Followed(made(ThinkingBudgetLogitsProcessor), params, prompt, asynchronous)
        changed += follow(followed, events, expected)

    check()
    assert changed > 300, changed


def _next_of_marker(
    history: list[int], budget: int, start: list[int], end: list[int]
) -> int | None:
    rest, inside = history, False
    while True:
        marker = end if inside else start
        found = [at for at in range(len(rest)) if rest[at : at + len(marker)] == marker]
        if not found:
            break
        rest, inside = rest[found[0] + len(marker) :], not inside
    if not inside or len(rest) < budget or history[-1] == -1:
        return None
    there = [n for n in range(len(end)) if rest[len(rest) - n :] == end[:n] and n <= len(rest)]
    return end[there[-1]]
