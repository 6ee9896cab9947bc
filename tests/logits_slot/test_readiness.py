# SPDX-License-Identifier: Apache-2.0
"""What a certificate of a batch plugin says of what vLLM does not do for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import jsonschema
import pytest
from click.testing import CliRunner
from support import ROOT, lasting
from user import CACHE, certificates

from conformance.cli import main
from conformance.reporting import certificate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.worker import Zygote

REFERENCE = ROOT / "reference_plugins"
HISTORY_READER = f"{REFERENCE}/logits_batch/no_repeat_ngram.py:NoRepeatNgramLogitsProcessor"
INVARIANT = f"{REFERENCE}/logits_batch/probability_floor.py:ProbabilityFloorLogitsProcessor"
DUAL = f"{REFERENCE}/logits_slot/dual_target_token.py:DualTargetTokenLogitsProcessor@logits/batch"

#: Looks at how many outputs there are, and at none of them.
COUNTING = """\
from reference_plugins.logits_batch.target_token import TargetTokenLogitsProcessor
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor


class Counting(AdapterLogitsProcessor):
    @classmethod
    def validate_params(cls, sampling_params):
        TargetTokenLogitsProcessor.validate_params(sampling_params)

    def is_argmax_invariant(self):
        return False

    def new_req_logits_processor(self, params):
        token = (params.extra_args or {}).get("target_token")

        def apply(output_ids, logits):
            logits[token % len(logits)] += 1.0 + len(output_ids)
            return logits

        return None if token is None else apply
"""

ABOUT = "Model Runner V2, the default of vLLM 0.31 and later, refuses this class"
LOADING = "loaded by its entry point alone, it never sees which tokens were sampled"
OUTPUTS = "it reads the output list; there outputs are on the device only"
PROMPT = "it reads the prompt list; there the tokens are on the device only"
CLAIM = "it claims argmax invariance; there no step is skipped for greedy requests"
PENALTIES = "it runs before penalties; there it runs after them"


@attrs.frozen
class Certified:
    """Certificates by target, and what the command said."""

    documents: dict[str, dict[str, Any]]
    said: str

    def says(self, target: str) -> list[str]:
        """Return the sentences of a certificate's note about Model Runner V2."""
        (says,) = (
            note["says"]
            for note in self.documents[target]["notes"]
            if note["about"].startswith(ABOUT)
        )
        return list(says)

    def about(self, target: str) -> list[str]:
        """Return what the notes of a certificate are about."""
        return [note["about"] for note in self.documents[target]["notes"]]


@pytest.fixture(scope="module")
def certified(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    """Certify a history reader, an argmax-invariant plugin and a class of both interfaces."""
    folder = tmp_path_factory.mktemp("certified")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conformance.running.zygotes.start_zygote", lambda: lasting(zygote))
        patch.setenv("VLLM_CONFORMANCE_CACHE", CACHE)
        patch.setenv("COLUMNS", "400")  # so that no sentence is wrapped
        patch.chdir(folder)
        (folder / "counting.py").write_text(COUNTING, encoding="utf-8")
        targets = (HISTORY_READER, INVARIANT, DUAL, "counting.py")
        done = CliRunner().invoke(main, ["certify", *targets, "--budget", "quick"])
        assert done.exit_code == 0, done.output
        yield Certified(certificates(folder), done.output)


def test_a_history_reader_is_told_where_outputs_are(certified: Certified) -> None:
    """What it looks into is on the device there."""
    says = certified.says(HISTORY_READER)

    assert [OUTPUTS in sentence for sentence in says].count(True) == 1
    assert any(PROMPT in sentence for sentence in says)
    assert PENALTIES in says
    assert not any(CLAIM in sentence for sentence in says)


def test_an_argmax_invariant_plugin_is_told_what_becomes_of_the_claim(
    certified: Certified,
) -> None:
    """It claims something that is asked nowhere there; it reads no history, and is told of none."""
    says = certified.says(INVARIANT)

    assert [CLAIM in sentence for sentence in says].count(True) == 1
    assert PENALTIES not in says
    assert not any(OUTPUTS in sentence or PROMPT in sentence for sentence in says)


def test_a_history_reader_is_told_what_an_entry_point_hides(certified: Certified) -> None:
    """A plugin that reads no outputs misses nothing, however it is loaded."""
    about = certified.about(HISTORY_READER)

    assert [LOADING in each for each in about].count(True) == 1
    assert "--no-async-scheduling" in certified.said
    assert not any(LOADING in each for each in certified.about(INVARIANT))
    assert not any(LOADING in each for each in certified.about(DUAL))
    counting = next(target for target in certified.documents if target.startswith("counting"))
    assert not any(LOADING in each for each in certified.about(counting))


def test_a_class_of_both_interfaces_is_told_nothing(certified: Certified) -> None:
    """Nothing would have to change."""
    assert certified.documents[DUAL]["notes"] == []


def test_notes_fit_the_schema(certified: Certified) -> None:
    """A note is what it is about and sentences, and nothing else."""
    document = certified.documents[HISTORY_READER]
    jsonschema.validate(document, certificate.schema())

    for damaged in ({"about": ABOUT}, {"about": ABOUT, "says": [1]}, {"about": ABOUT, "says": ""}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**document, "notes": [damaged]}, certificate.schema())


def test_notes_are_shown_below_the_table(certified: Certified) -> None:
    """The command says each sentence once, below the plugin that it is about."""
    headlines = [certified.said.index(f"{target}  CONFORMANT") for target in certified.documents]
    bounds = [*sorted(headlines), len(certified.said)]
    for target in (HISTORY_READER, INVARIANT):
        start = certified.said.index(f"{target}  CONFORMANT")
        mine = certified.said[start : bounds[bounds.index(start) + 1]]
        says = certified.says(target)
        assert [mine.count(f"  - {sentence}\n") for sentence in says] == [1] * len(says)
    # That of the plugin that counts is a third one.
    assert certified.said.count(ABOUT) == len((HISTORY_READER, INVARIANT)) + 1
