# SPDX-License-Identifier: Apache-2.0
"""What was generated, put together from the outputs of a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook.contract import ScoringContext, TokenLogprob

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.sampling_params import SamplingParams

    from reference_plugins.classifier_hook.contract import Logprobs


@dataclass(slots=True)
class _Generated:
    """One completion so far."""

    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Any] | None = None


class Transcript:
    """The completions of one call of ``generate``.

    Args:
        params: the request's sampling parameters.
        tokenizer: decodes what the engine does not, or None.
        extra_fields: for the contexts.
        request_metadata: for the contexts.

    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        tokenizer: Any = None,  # noqa: ANN401 - vLLM's, of any release
        extra_fields: dict[str, Any],
        request_metadata: dict[str, Any],
    ) -> None:
        kind = params.output_kind.name
        self.streams = kind != "FINAL_ONLY"
        self.deltas = kind == "DELTA"
        self._params = params
        self._tokenizer = tokenizer
        self._extra_fields = extra_fields
        self._request_metadata = request_metadata
        self._generated: dict[int, _Generated] = {}
        self._prompt_logprobs: Any = None
        self._prompt = (0, "")  #: decoded, and how many tokens it had

    def read(self, output: RequestOutput) -> list[CompletionOutput]:
        """Take in an output and return those of its completions that are finished."""
        if output.prompt_logprobs is not None:
            # A stream has them in its first output only.
            self._prompt_logprobs = output.prompt_logprobs
        finished = []
        for completion in output.outputs:
            if self.deltas:
                so_far = self._generated.setdefault(completion.index, _Generated())
                so_far.text.append(completion.text)
                so_far.token_ids.extend(completion.token_ids)
                if completion.logprobs is not None:
                    so_far.logprobs = so_far.logprobs or []
                    so_far.logprobs.extend(completion.logprobs)
            if completion.finish_reason is not None:
                finished.append(completion)
        return finished

    def context(self, output: RequestOutput, completion: CompletionOutput) -> ScoringContext:
        """Return what hooks are told of a finished completion; to be asked for once.

        A session whose input is a stream finishes the same completion again and again, each time
        after a turn of its own.
        """
        if self.deltas:
            # In order: deltas that merged for a slow reader hold what came before them.
            generated = self._generated.pop(completion.index)
        else:
            generated = _Generated(
                [completion.text],
                list(completion.token_ids),
                None if completion.logprobs is None else list(completion.logprobs),
            )
        text = "".join(generated.text)
        if not self._params.detokenize:
            text = self._decode(generated.token_ids)
        assert completion.finish_reason is not None
        logprobs = generated.logprobs
        return ScoringContext(
            request_id=output.request_id,
            prompt=self._text_of_prompt(output),
            generated_text=text,
            finish_reason=completion.finish_reason,
            prompt_token_ids=list(output.prompt_token_ids or ()),
            output_token_ids=generated.token_ids,
            extra_fields=self._extra_fields,
            request_metadata=self._request_metadata,
            index=completion.index,
            stop_reason=completion.stop_reason,
            logprobs=_logprobs(logprobs),
            cumulative_logprob=None if logprobs is None else completion.cumulative_logprob,
            prompt_logprobs=_logprobs(self._prompt_logprobs),
        )

    def _text_of_prompt(self, output: RequestOutput) -> str:
        text: str | None = output.prompt
        if text is not None:
            return text
        token_ids = output.prompt_token_ids or []
        # Decoded once for all completions; the prompt of a session grows.
        if self._prompt[0] != len(token_ids):
            self._prompt = (len(token_ids), self._decode(token_ids))
        return self._prompt[1]

    def _decode(self, token_ids: Sequence[int]) -> str:
        if self._tokenizer is None or not token_ids:
            return ""
        skip = self._params.skip_special_tokens
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=skip)
        return text


def _logprobs(positions: Iterable[Any] | None) -> Logprobs | None:
    if positions is None:
        return None
    return [
        position
        and {
            token: TokenLogprob(one.logprob, one.rank, one.decoded_token)
            for token, one in position.items()
        }
        for position in positions
    ]
