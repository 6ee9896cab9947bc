# SPDX-License-Identifier: Apache-2.0
"""Point clouds in a real engine: prompts and chats with items that vLLM has never heard of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance.worker import Zygote


def ask(zygote: Zygote, directory: Path, job: str, **arguments: Any) -> Any:  # noqa: ANN401
    """Return the answer of a job."""
    process = zygote.fork(
        f"bridge_job:{job}",
        arguments,
        log=directory / "job.log",
        directory=directory,
        python_path=[str(Path(__file__).parent)],
    )
    try:
        return process.ask("go", limit=240)
    finally:
        process.close()


@pytest.fixture(scope="module")
def served(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one engine said."""
    folder = tmp_path_factory.mktemp("bridge")
    answer: dict[str, Any] = ask(zygote, folder, "served", folder=folder)
    return answer


def test_a_model_has_a_largest_item(zygote: Zygote, tmp_path: Path) -> None:
    """vLLM reserves memory for it, so it cannot be left out."""
    answer = ask(zygote, tmp_path, "refusals")

    assert answer["said"] == (
        "TypeError: Without needs get_dummy_item(modality): vLLM reserves memory for the largest "
        "item there may be"
    )


@pytest.mark.engine
def test_items_take_as_many_tokens_as_the_plugin_counts(served: dict[str, Any]) -> None:
    """A token for each 32 points, of which 256 are kept."""
    assert served["sizes"] == {1: 1, 32: 1, 33: 2, 400: 8}


@pytest.mark.engine
def test_a_chat_is_its_prompt(served: dict[str, Any]) -> None:
    """Parts of the plugin's own type are where they were among the texts."""
    as_prompt, as_chat = served["prompts"]

    assert as_chat == as_prompt
    assert served["same"]
    assert served["text"]


@pytest.mark.engine
def test_items_have_names(served: dict[str, Any]) -> None:
    """A client sends an item once, and later its ``uuid`` alone."""
    assert served["named"]
    assert "Cache miss for point_cloud at index 0" in served["errors"]["unknown"]


@pytest.mark.engine
def test_the_model_sees_which_item_is_where(served: dict[str, Any]) -> None:
    """Two clouds the other way round are another question."""
    one, other = served["order"]

    assert one != other


@pytest.mark.engine
def test_what_is_wrong_is_said(served: dict[str, Any]) -> None:
    """Each mistake is the client's, in a sentence."""
    errors = served["errors"]

    assert errors["too many"].startswith("VLLMValidationError: At most 3 point_cloud(s)")
    assert errors["no cloud"] == (
        "InputError: point_cloud[0]: a URL, a path, base64 data or bytes are needed (got int)"
    )
    assert errors["options"] == "InputError: Clouds takes no option x"
    assert errors["placeholder"] == (
        "InputError: text may not have the placeholder <point_cloud> in it"
    )
    assert "At most 0 image(s)" in errors["picture"]


@pytest.mark.engine
def test_a_placeholder_is_in_the_vocabulary(served: dict[str, Any]) -> None:
    """A model for another tokenizer does not start."""
    assert (
        "the placeholder token of point_cloud is 9000, and the vocabulary of this checkpoint has "
        "260 tokens"
    ) in served["far"]
