# SPDX-License-Identifier: Apache-2.0
"""What an author of a parser is told to write in a profile."""

from __future__ import annotations

from typing import Any

from conformance.parser import markers
from conformance.parser.roles import TOOL


def way_out(cls: type[Any], role: str, where: str, raised: str | None = None) -> str:
    """Say that the parser found nothing, and what a profile would have to say."""
    example = (
        '{ text = "...", tool_calls = [{ name = "f", arguments = { x = "y" } }] }'
        if role == TOOL
        else '{ text = "<r>...</r>...", reasoning = "...", content = "..." }'
    )
    special = special_tokens(cls, "...")
    what = "call" if role == TOOL else "reasoning"
    makes = f"; making an instance raised {raised}" if raised else ""
    return (
        f"no {what} was found in {where}{makes}; give answers of the model in the profile: "
        f"[parser] samples = [{example}], special_tokens = [{special}]"
    )


def its_own_tokens(error: Exception) -> str:
    """Say that a parser refuses a tokenizer that was made up."""
    return (
        f"making an instance raised {error}, with a tokenizer of the profile's special_tokens that "
        "has no other; name all tokens that it looks for, or the folder with the tokenizer of its "
        'model, where it wants them at their ids: [parser] tokenizer = "path/to/model"'
    )


def special_tokens(cls: type[Any], otherwise: str) -> str:
    """Return tokens that a profile may name: those of the source, of which some are told."""
    found = [f'"{each}"' for each in markers.of_source(cls)]
    more = ["..."] if len(found) > markers.NAMED else []
    return ", ".join([*found[: markers.NAMED], *more]) or otherwise
