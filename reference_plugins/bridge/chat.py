# SPDX-License-Identifier: Apache-2.0
"""Chats with parts of a plugin's own types, which vLLM's own front end does not know.

``vllm serve`` checks the parts of a chat by their types only here: a renderer, which
``--tokenizer-mode`` chooses, turns messages into a prompt and its items. This one takes the parts
that a plugin reads out of the messages, writes the placeholder's token in their places, and leaves
the rest to vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
from vllm.renderers.hf import HfRenderer
from vllm.renderers.registry import RENDERER_REGISTRY
from vllm.tokenizers.registry import TokenizerRegistry

from reference_plugins.bridge.processing import BridgedInfo
from reference_plugins.modality.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference_plugins.bridge.serving import Serving

    Messages = list[Any]  # of TypedDicts, in which a part may have fields that they do not name


def register(mode: str) -> None:
    """Let ``--tokenizer-mode`` choose the renderer; the tokenizer is that of Hugging Face."""
    if mode not in RENDERER_REGISTRY.renderers:
        RENDERER_REGISTRY.register(mode, __name__, "ModalityRenderer")
        TokenizerRegistry.register(mode, "vllm.tokenizers.hf", "CachedHfTokenizer")


@attrs.frozen
class Taken:
    """The items of a chat, by modality and in their order, and the clients' ids of them."""

    data: dict[str, list[Any]] = attrs.field(factory=dict)
    uuids: dict[str, list[str | None]] = attrs.field(factory=dict)

    def add(self, modality: str, data: object, uuid: object) -> None:
        """Add the next item."""
        self.data.setdefault(modality, []).append(data)
        self.uuids.setdefault(modality, []).append(None if uuid is None else str(uuid))

    def given(self, prompt: Any) -> Any:  # noqa: ANN401 - one of vLLM's prompts
        """Return a prompt with the items."""
        if self.data:
            prompt["multi_modal_data"] = self.data
            prompt["multi_modal_uuids"] = self.uuids
        return prompt


class ModalityRenderer(HfRenderer):
    """Renders chats for bridged models, and all others as vLLM does."""

    def render_messages(self, messages: Messages, params: Any) -> Any:  # noqa: ANN401 - vLLM's
        """Return the conversation, and the prompt with its items."""
        plain, taken = self._taken_out(messages)
        conversation, prompt = super().render_messages(plain, params)
        return conversation, taken.given(prompt)

    async def render_messages_async(self, messages: Messages, params: Any) -> Any:  # noqa: ANN401 - vLLM's
        """Do the same in a server."""
        plain, taken = self._taken_out(messages)
        conversation, prompt = await super().render_messages_async(plain, params)
        return conversation, taken.given(prompt)

    def _taken_out(self, messages: Messages) -> tuple[Messages, Taken]:
        """Return messages of text alone, and what was taken out of them.

        Raises:
            InputError: a text has a placeholder in it, which would move all items behind it.

        """
        info = self.get_mm_processor().info if self.model_config.is_multimodal_model else None
        taken = Taken()
        if not isinstance(info, BridgedInfo):
            return messages, taken
        tokenizer: Any = self.get_tokenizer()
        serving = info.serving
        written = {
            modality: tokenizer.convert_ids_to_tokens(token)
            for modality, token in serving.placeholder_tokens.items()
        }
        plain = []
        for message in messages:
            content = message.get("content")
            _refuse(content, written.values())
            if isinstance(content, list):
                parts = [_rewritten(part, serving, written, taken) for part in content]
                message = {**message, "content": parts}  # noqa: PLW2901 - the client's stays as it is
            plain.append(message)
        return plain, taken


def _rewritten(part: Any, serving: Serving, written: Mapping[str, str], taken: Taken) -> Any:  # noqa: ANN401 - a client's
    """Return a part of a message, or the placeholder that stands for its item."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    modality = serving.registry.get_modality(kind) if isinstance(kind, str) else None
    if modality is None or modality not in written:
        _refuse(part.get("text") if isinstance(part, Mapping) else part, written.values())
        return part
    assert isinstance(kind, str)  # or it would be no modality's
    taken.add(modality, part.get(kind), part.get("uuid"))
    return {"type": "text", "text": written[modality]}


def _refuse(text: object, placeholders: Sequence[str] | Any) -> None:  # noqa: ANN401 - a view
    """Refuse a text with a placeholder in it."""
    for placeholder in placeholders:
        if isinstance(text, str) and placeholder in text:
            raise InputError(f"text may not have the placeholder {placeholder} in it")
