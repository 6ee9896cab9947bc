# SPDX-License-Identifier: Apache-2.0
"""Cases of processors, judged again."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from cases import failing_copy
from support import DEFECTIVE_PROCESSOR, gallery

from conformance.generations import find_rule
from conformance.reporting.failure import render
from conformance.running.replay import Outcome
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conformance.worker import Zygote

SPECIMENS = {specimen.name: specimen for specimen in gallery(DEFECTIVE_PROCESSOR)}

#: How to mend some of the gallery: what is there, and what should be.
MENDED = {
    "splits_rows_evenly": (".chunk(len(image_sizes))", ".split(image_sizes.tolist())"),
    "counts_the_end_token": ("!= START", "== IMAGE"),
    "sorts_by_size": (", key=len)", ", key=lambda _: 0)"),
    "numbers_its_images": ("[*tokens, *plain.full]", "[*plain.full]"),
    "pops_its_options": (".pop(", ".get("),
    "adds_noise": ("0.05", "0.0"),
    "hashes_bytes_alone": (
        ".tobytes() + options",
        ".tobytes() + options + repr((np.shape(image), getattr(image, 'mode', ''))).encode()",
    ),
    "asserts_its_limit": (
        'assert num_items <= self.allowed_mm_limits[modality], f"too many items of {modality}"',
        "super().validate_num_items(modality, num_items)",
    ),
    "estimates_small_images": ("side = 6", "side = 8"),
    "leaves_bytes_as_they_are": ("* 255", "* 1"),
    "refuses_the_arrays_it_names": ("not isinstance(image, Image.Image)", "image is None"),
    "refuses_the_option_it_names": ("side <= 1", "side < 1"),
    "takes_a_cache": ("dummy_inputs, cache)", "dummy_inputs, cache=None)"),
}

pytestmark = pytest.mark.usefixtures("shared_zygote")


@pytest.mark.parametrize("name", MENDED)
def test_a_case_is_judged_again(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """With the plugin as it was it still fails, and with a correct one it is fixed."""
    case = failing_copy(zygote, SPECIMENS[name], tmp_path)
    rule = SPECIMENS[name].rule
    document = json.loads(case.path.read_text(encoding="utf-8"))
    assert document["generation"] == "mm/processor"

    outcome, sentence = case.replay()
    assert outcome is Outcome.STILL_FAILS
    told = partial(re.sub, r"\S+ at \d+", "NOISE") if name == "adds_noise" else str
    assert told(sentence) == told(f"{rule}: {case.message}")

    case.replace(*MENDED[name])
    outcome, sentence = case.replay()
    assert outcome is Outcome.FIXED, sentence
    where = {"prompt": "for this prompt", "check": "in its check"}
    assert sentence == f"{rule} holds {where[document['counterexample']['kind']]} now"


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("        raise OSError('disk')\n", "OSError: disk"),
        ("        raise SystemExit(3)\n", "SystemExit(3)"),
        ("        return nothing_of_that_name\n", "nothing_of_that_name"),
        ("        return None\n", "NoneType"),
    ],
    ids=["raises", "exits", "names nothing", "returns nothing"],
)
def test_another_fault_is_no_mending(zygote: Zygote, new: str, said: str, tmp_path: Path) -> None:
    """A plugin that fails in another way by now is not fixed."""
    case = failing_copy(zygote, SPECIMENS["sorts_by_size"], tmp_path)
    old = "        return sorted(super().image_rows(image_rows, image_sizes), key=len)\n"
    case.replace(old, new)

    outcome, sentence = case.replay()
    assert outcome is Outcome.CHANGED, sentence
    assert said.lower() in sentence.lower()


def test_a_failure_is_told_with_its_items(zygote: Zygote, tmp_path: Path) -> None:
    """The text has a line for each item: where it is, its placeholders and its rows."""
    case = failing_copy(zygote, SPECIMENS["splits_rows_evenly"], tmp_path)
    document = json.loads(case.path.read_text(encoding="utf-8"))
    _, rule = find_rule("MM-21")
    text = render(
        rule,
        message=case.message,
        evidence=["simulator"],
        counterexample=document["counterexample"],
        case=str(case.path),
    )

    rows = [line.split()[1:] for line in text.splitlines() if " image " in line]
    assert sorted((row[1], *row[-2:]) for row in rows) == [
        ("28x28#1", "4", "8"),
        ("84x28#2", "12", "8"),
    ]
    assert sum("[" in line.split()[0] for line in text.splitlines() if " image " in line) == 1
    assert f"vllm-conformance replay {case.path}" in text


#: What is done to a counterexample, and what its sentence names.
SPOILT: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no item": (lambda found: found.update(parts=[2]), "has no item"),
    "half a token": (lambda found: found["parts"].append(0.5), "float"),
    "no tokens": (lambda found: found["parts"].append(0), "int"),
    "an item without a size": (lambda found: found["parts"].append(["image", "big"]), "'big'"),
    "a number for an item": (lambda found: found["parts"].append(["image", 3]), "3"),
    "options that are none": (lambda found: found.update(options=[1]), "no options"),
    "a rule that there is not": (lambda found: found.update(rule="MM-99"), "MM-99"),
    "a model that is not there": (lambda found: found.update(model="tiny-lava"), "tiny-llava"),
    "objects": (lambda found: found.update(objects=True), "Python objects"),
    "no parts at all": (lambda found: found.pop("parts"), "no case file"),
}


def test_a_spoilt_case_is_said_to_be_one(zygote: Zygote, tmp_path: Path) -> None:
    """One sentence that names the file and what is wrong in it, and no traceback."""
    case = failing_copy(zygote, SPECIMENS["sorts_by_size"], tmp_path)
    whole = case.path.read_text(encoding="utf-8")

    for spoil, said in SPOILT.values():
        document = json.loads(whole)
        spoil(document["counterexample"])
        case.path.write_text(json.dumps(document), encoding="utf-8")
        with pytest.raises(UsageError) as caught:
            case.replay()
        assert said.lower() in str(caught.value).lower()
        assert str(case.path) in str(caught.value)
        assert "\n" not in str(caught.value)
