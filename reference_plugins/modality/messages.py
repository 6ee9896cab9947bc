# SPDX-License-Identifier: Apache-2.0
"""From chat messages to a request: text becomes tokens, each item one placeholder token.

Which part belongs to which modality the plugins say, so this module names none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reference_plugins.modality.errors import InputError
from reference_plugins.modality.processor import Attachment, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reference_plugins.modality.interface import ModelConfig
    from reference_plugins.modality.registry import MultiModalRegistry

    Tokenize = Callable[[str], Sequence[int]]


def request_from_messages(
    messages: Sequence[Mapping[str, object]],
    registry: MultiModalRegistry,
    model_config: ModelConfig,
    tokenize: Tokenize,
) -> Request:
    """Return the request in chat messages of OpenAI's form, one after the other without roles.

    A deployment's chat template would add the roles; the order of text and items is this one.
    Text that holds a placeholder token is refused later, when the request is parsed.

    Raises:
        InputError: content that is no text and no list of parts, or a part of a type that the
            model does not take.

    """
    tokens: list[int] = []
    attachments: list[Attachment] = []
    for part in _parts(messages):
        part_type = part.get("type")
        if part_type == "text":
            tokens += tokenize(_text(part))
            continue
        modality = registry.get_modality(part_type) if isinstance(part_type, str) else None
        if modality is None or not registry.has_modality(modality, model_config.name):
            taken = ", ".join(("text", *model_config.multimodal.modalities))
            raise InputError(
                f"model {model_config.name!r} does not support a part of type {part_type!r}; "
                f"it supports {taken}"
            )
        tokens.append(model_config.multimodal.placeholder_tokens[modality])
        attachments.append(Attachment(modality, part.get(str(part_type))))
    return Request(tuple(tokens), tuple(attachments))


def _parts(messages: Sequence[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    """Yield the parts of all messages; content that is plain text is one part."""
    for number, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, str):
            yield {"type": "text", "text": content}
        elif isinstance(content, Sequence) and all(isinstance(each, Mapping) for each in content):
            yield from content
        else:
            raise InputError(f"message {number} needs text or a list of parts as its content")


def _text(part: Mapping[str, object]) -> str:
    """Return the text of a part."""
    text = part.get("text")
    if not isinstance(text, str):
        raise InputError(f"a part of type 'text' needs a text (got {type(text).__qualname__})")
    return text
