# SPDX-License-Identifier: Apache-2.0
"""A plugin may wait for more tokens than a request has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
from specimens import slot_references
from support import GENERATIONS, UNUSUAL, UNUSUAL_SLOT, Specimen, certify, gallery

from conformance.inputs.words import Words
from conformance.logits.configuration import LONGEST_SAID, ROOM
from conformance.settings import UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

#: Bans a token behind each of four phrases of sixteen tokens.
WORDY = """\
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor


class Wordy(LogitsProcessor):
    def __init__(self, vllm_config, req_states):
        self.states = req_states
        self.phrases = [[first + each for each in range(16)] for first in (40, 80, 120, 160)]

    def add_request(self, req_idx, sampling_params):
        return True

    def apply(self, logits, ctx):
        tokens, lengths = self.states.all_token_ids.gpu, self.states.total_len.gpu
        for row, slot in enumerate(ctx.expanded_idx_mapping.tolist()):
            length = int(ctx.pos[row]) + 1
            if tokens[slot, max(0, length - 16) : length].tolist() in self.phrases:
                logits[row, 5] = -float("inf")
        return logits
"""


def _wordy(folder: Path, profile: dict[str, Any]) -> Specimen:
    (folder / "wordy.py").write_text(WORDY, encoding="utf-8")
    generation = GENERATIONS["logits_slot"]
    return Specimen(f"{folder / 'wordy.py'}:Wordy", None, profile, generation=generation)


@pytest.mark.parametrize(
    "profile",
    [{}, {"on": [{}], "outputs": [[*range(3, 3 + LONGEST_SAID - 16), *range(40, 56)]]}],
    ids=["none", "said"],
)
def test_a_request_ends_where_its_context_does(
    zygote: Zygote, tmp_path: Path, profile: dict[str, Any]
) -> None:
    """What the plugin waits for is said in several requests, none of which outgrows the model."""
    rules = {"LS-03", "LS-05", "LS-08", "LS-26"}
    results = certify(zygote, _wordy(tmp_path, profile), tmp_path, rules=rules)

    assert {
        rule: (found.verdict, found.message) for rule, found in results.items()
    } == dict.fromkeys(rules, (Verdict.PASS, None))


@pytest.mark.parametrize(
    ("folder", "rules"),
    [(UNUSUAL_SLOT, ("LS-05", "LS-19", "LS-21")), (UNUSUAL, ("LB-05", "LB-10", "LB-34"))],
    ids=["slot", "batch"],
)
def test_requests_that_end_before_it_are_told(
    zygote: Zygote, tmp_path: Path, folder: Path, rules: tuple[str, ...]
) -> None:
    """Where no request can get what a plugin waits for, no rule passes or fails for it."""
    named = {specimen.name: specimen for specimen in gallery(folder)}
    waiting = named["calms_behind_a_long_phrase"]
    on = [{**each, "max_tokens": 12} for each in waiting.profile["on"]]
    ended = attrs.evolve(waiting, profile={**waiting.profile, "on": on})
    results = certify(zygote, ended, tmp_path, rules=set(rules))

    for rule in rules:
        assert results[rule].verdict is Verdict.NOT_VERIFIED
        assert str(results[rule].message).endswith(
            "what it waits for has 12 tokens, and requests have to get another one behind them: "
            "on[0] gets 12, on[1] gets 12"
        )


def test_a_client_may_ask_for_any_number_of_tokens(zygote: Zygote, tmp_path: Path) -> None:
    """A server cuts what is asked for to what there is room for: nothing of that ends a trial."""
    on = [{"extra_args": {"target_token": 67}, "max_tokens": 1 << 40}]
    specimen = attrs.evolve(slot_references()[0], profile={"on": on, "off": [{}]})
    results = certify(zygote, specimen, tmp_path, rules={"LS-03", "LS-35", "LS-39"})

    assert {found.verdict for found in results.values()} == {Verdict.PASS}, results


def test_what_no_request_holds_is_refused(zygote: Zygote, tmp_path: Path) -> None:
    """One sentence says which entry is too long, and by how much."""
    profile = {"on": [{}], "prompts": [[7], [7] * (LONGEST_SAID + 1)]}
    with pytest.raises(UsageError) as refused:
        certify(zygote, _wordy(tmp_path, profile), tmp_path, rules={"LS-05"})

    assert str(refused.value) == (
        "profile: prompts[1] has 97 tokens; a simulated request has 128, and an entry may have 96 "
        "of them."
    )


def test_pieces_say_everything_that_the_script_does() -> None:
    """A script that fits is one piece; another one is cut between phrases."""
    short = Words((5, 7), phrases=((1, 2), (3,)))
    assert short.pieces(ROOM) == [short.script]

    phrases = tuple(tuple(range(first, first + 16)) for first in (40, 80, 120, 160))
    pieces = Words((5, 7), phrases=phrases).pieces(ROOM)

    assert all(len(piece) <= ROOM for piece in pieces)
    assert sum(pieces, ()) == Words((5, 7), phrases=phrases).script
    assert Words((5,), phrases=(tuple(range(100)),)).pieces(ROOM)[0] == tuple(range(ROOM))
