# SPDX-License-Identifier: Apache-2.0
"""Cases of IO processors, played again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from lines_plugin import PROFILE, Fault, certified, failing

from conformance.counterexample.source import decoded, encoded
from conformance.generations import named
from conformance.reporting.failure import render
from conformance.running.replay import Outcome
from conformance.settings import UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conformance.worker import Zygote

POST = '        return {"firsts": [output.outputs.data[0].item() for output in model_output]}\n'
COUNTED = "        self.names['count'] = self.names.get('count', 0) + len(model_output)\n"

COUNTS = Fault(
    "IO-26", ((POST, COUNTED + POST), ('{"firsts"', '{"count": self.names["count"], "firsts"'))
)
UNSORTED = Fault(
    "IO-17",
    more="\n    async def post_process_async(self, model_output, request_id=None, **kwargs):\n"
    "        return self.post_process([output async for _, output in model_output])\n",
)
KEY_ERROR = Fault("IO-09", (('data.get("lines") if', 'data["lines"] if'),))
KINDS = {"traffic": COUNTS, "check": KEY_ERROR}

pytestmark = pytest.mark.usefixtures("shared_zygote")


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_is_played_again(zygote: Zygote, kind: str, tmp_path: Path) -> None:
    """With the plugin as it was it still fails, and with a correct one it is fixed."""
    case = failing(zygote, KINDS[kind], tmp_path)
    found = case.result.counterexample

    assert found is not None
    assert found["kind"] == kind
    assert found["model"] == "tiny-embedding"
    outcome, sentence = case.replay()
    assert outcome is Outcome.STILL_FAILS, sentence
    assert sentence == f"{case.result.rule}: {case.result.message}"

    case.mend()
    outcome, sentence = case.replay()
    assert outcome is Outcome.FIXED
    assert sentence.endswith({"traffic": "holds in this history now"}.get(kind, "its check now"))


def test_awaited_hooks_are_awaited_again(zygote: Zygote, tmp_path: Path) -> None:
    """A history that only they show still fails, and is fixed without them."""
    case = failing(zygote, UNSORTED, tmp_path)

    assert case.replay()[0] is Outcome.STILL_FAILS
    case.mend()
    assert case.replay()[0] is Outcome.FIXED


def test_a_history_is_played_and_not_its_whole_check(zygote: Zygote, tmp_path: Path) -> None:
    """A fault that only longer histories show is gone from this one."""
    case = failing(zygote, COUNTS, tmp_path)
    case.replace('{"count": self.names["count"]', '{"count": self.names["count"] > 5')

    assert case.replay()[0] is Outcome.FIXED
    assert certified(zygote, case.plugin, "IO-26").verdict is Verdict.FAIL


def test_a_failure_of_a_later_request_is_drawn(zygote: Zygote, tmp_path: Path) -> None:
    """The terminal shows the history, whichever of its requests went wrong."""
    case = failing(zygote, COUNTS, tmp_path)
    rule = named("io/data").rule("IO-26")

    text = render(
        rule, message=case.result.message, evidence=[], counterexample=case.result.counterexample
    )

    assert str(case.result.message).startswith("request B")
    assert " B arrives " in " ".join(text.split())


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_has_its_model(zygote: Zygote, kind: str, tmp_path: Path) -> None:
    """A plugin that needs a model with three labels is served with that model again."""
    fault = KINDS[kind]
    labels = "        assert vllm_config.model_config.hf_config.num_labels == 3\n"
    asks = (
        ("        self.names = {}\n", labels + "        self.names = {}\n"),
        ('params.task = "embed"', 'params.task = "classify"'),
    )
    profile = PROFILE + 'model = "tiny-classification"\n'
    case = failing(zygote, Fault(fault.rule, (*fault.changes, *asks)), tmp_path, profile=profile)

    outcome, sentence = case.replay()
    assert outcome is Outcome.STILL_FAILS, sentence
    case.plugin.write_text(Fault(fault.rule, asks).applied()[1], encoding="utf-8")
    assert case.replay()[0] is Outcome.FIXED


#: What else may be wrong with a plugin by now, and what is said of it.
OTHERWISE = {
    "raises": (POST, "        raise OSError('disk')\n", "OSError: disk"),
    "cannot be made": ("self.names = {}", "self.names = {}['x']", "KeyError: 'x'"),
    "exits": (POST, "        raise SystemExit(1)\n", "SystemExit"),
    "is not steady": ('"firsts":', '"time": time.time_ns(), "firsts":', "another answer"),
    "cannot be imported": ("import asyncio", "import nothing_of_that_name", "nothing_of_that_name"),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_another_fault_is_no_mending(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """A plugin that fails in another way is not fixed."""
    case = failing(zygote, COUNTS, tmp_path)
    case.mend()
    old, new, said = OTHERWISE[name]
    case.replace(old, new)

    outcome, sentence = case.replay()
    assert outcome is Outcome.CHANGED, sentence
    assert said in sentence


def _first_move(value: Any) -> Callable[[dict[str, Any]], None]:  # noqa: ANN401 - what is no move
    return lambda found: found["moves"].__setitem__(0, value)


#: What is done to a counterexample, and what its sentence names.
SPOILT: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a move of nobody": (_first_move(["arrives", 9, 0]), "request 9 among 2"),
    "a move of half a request": (_first_move(["arrives", 0.5, 0]), "request 0.5"),
    "an unknown move": (_first_move(["sings", 0, 0]), "'sings' is not a valid Do"),
    "a number for a move": (_first_move(7), "int"),
    "nobody arrives": (lambda found: found["moves"].clear(), "no request arrives"),
    "a request without data": (lambda found: found["requests"][0].pop("data"), "data"),
    "requests that are no list": (lambda found: found.update(requests=3), "int"),
    "a model that is not there": (
        lambda found: found.update(model="tiny-embeding"),
        "Did you mean 'tiny-embedding'?",
    ),
    "objects": (lambda found: found.update(objects=True), "Python objects"),
    "no moves at all": (lambda found: found.pop("moves"), "no case file"),
    "a kind that there is not": (lambda found: found.update(kind="opera"), "no case file"),
}


def test_a_spoilt_case_is_said_to_be_one(zygote: Zygote, tmp_path: Path) -> None:
    """One sentence that names the file and what is wrong in it, and no traceback."""
    case = failing(zygote, COUNTS, tmp_path)
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


def test_texts_that_no_file_takes_are_written_and_read() -> None:
    """Halves of surrogate pairs are legal in JSON, and neither in UTF-8 nor in a terminal."""
    value = {"a": ["\ud800", "\\ud800", "\u00e9\udfff"], "\udc00": {"!type": "str"}}
    text = json.dumps(encoded(value), ensure_ascii=False)

    assert decoded(json.loads(text.encode("utf-8"))) == value
