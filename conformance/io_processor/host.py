# SPDX-License-Identifier: Apache-2.0
"""What serves a plugin: vLLM's own front ends where they run, and the documented ones.

``Served`` is ``ServingPooling`` of the installed vLLM, and ``Batched`` its ``LLM.encode``;
both with an engine that answers when it is told to.
``Documented`` calls a plugin as the document of the interface describes it, with the hooks that
are awaited; vLLM itself did until 0.19.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

import attrs
import torch
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.outputs import PoolingRequestOutput
from vllm.pooling_params import PoolingParams
from vllm.renderers import renderer_from_config
from vllm.renderers.inputs.preprocess import parse_model_prompt, prompt_to_seq
from vllm.utils.async_utils import merge_async_iterators

from conformance.counterexample.io_engine_player import output_of
from conformance.engine.model_classes import inspect_models_here
from conformance.engine.models import has_tokenizer
from conformance.engine.pooling import encoded, options
from conformance.engine.pooling_models import name_of
from conformance.io_processor import DATA, REQUEST, wire
from conformance.io_processor.engine import EngineFailed, ScriptedEngine
from conformance.io_processor.messages import (
    Received,
    WrongResponse,
    raw_request,
    received,
    request_of,
    response_class,
    writer,
    written,
)
from conformance.io_processor.watched import Watched
from conformance.settings import UsageError
from conformance.watching.comparison import plain

#: Parameters of a request that its client sets beside data, and their values.
Beside = tuple[tuple[str, Any], ...]

#: Characters of why vLLM takes no model: it names all that it knows.
MOST_SAID = 200

#: What a model's folder needs that has no file of a tokenizer.
_NO_TOKENIZER = (
    "; the folder has no tokenizer, and needs one beside its config.json (tokenizer.json and "
    "tokenizer_config.json), even where no prompt is a text"
)


@attrs.frozen(eq=False)
class Surroundings:
    """What an engine of a pooling model has before its first request."""

    config: VllmConfig
    renderer: Any
    #: vLLM's own check of a rendered prompt: some tokens, of the vocabulary, no more than fit; and
    #: of what is sent to the engine, that it can be.
    admit: Callable[[Any], None]
    #: What a profile calls the model, where it is one of the harness's own.
    own: str | None


@cache
def surroundings(model: str) -> Surroundings:
    """Return the configuration and the renderer of a pooling model.

    Raises:
        UsageError: vLLM refuses the model that the profile names.

    """
    inspect_models_here()
    writer()  # where this fails, no plugin is to blame
    own = name_of(model)
    try:
        config = EngineArgs(
            model=model,
            runner="pooling",
            enforce_eager=True,
            dtype="float32",
            **options(model),
        ).create_engine_config()
        renderer = renderer_from_config(config)
    except Exception as error:
        if own is not None:
            raise
        why = " ".join(str(error).split())
        bare = not has_tokenizer(Path(model))
        raise UsageError(
            f"[io-processor] model {Path(model).name!r}: vLLM does not take it: "
            f"{type(error).__name__}: {why[:MOST_SAID]}{_NO_TOKENIZER if bare else ''}"
        ) from error
    return Surroundings(config, renderer, _admission(config, renderer), own)


def length_of(model: str) -> int:
    """Return how many tokens fit into a prompt of a pooling model: as many as it takes.

    Raises:
        UsageError: vLLM refuses the model that the profile names.

    """
    return int(surroundings(model).config.model_config.max_model_len)


def _admission(config: VllmConfig, renderer: object) -> Callable[[Any], None]:
    """Return what raises ``ValueError`` where the front end of an engine takes no such prompt."""
    try:
        from vllm.inputs import split_enc_dec_input
        from vllm.v1.engine.input_processor import InputProcessor

        front = InputProcessor(config, renderer)
    except (ImportError, TypeError):  # releases that check it elsewhere
        return lambda _: None

    def admit(rendered: Any) -> None:  # noqa: ANN401 - a rendered prompt
        front._validate_model_inputs(*split_enc_dec_input(rendered))  # noqa: SLF001 - vLLM's
        wire.encoded(rendered)

    return admit


class Online(Protocol):
    """Serves single requests, several at a time."""

    name: ClassVar[str]  #: as certificates call it

    async def serve(
        self,
        plugin: Watched,
        engine: ScriptedEngine,
        data: object,
        request_id: str,
        beside: Beside = (),
    ) -> Received:
        """Serve a request and return what the client receives.

        Args:
            plugin: serves it.
            engine: answers its prompts.
            data: of the request.
            request_id: what the client calls it.
            beside: what the client sets beside data; only vLLM's own front end looks at it.

        Raises:
            Exception: what the plugin, the engine or the host raised.

        """


class Offline(Protocol):
    """Serves one request at a time, which has no id."""

    def serve(
        self, plugin: Watched, data: object, *, failing: bool = False, task: str | None = None
    ) -> Any:  # noqa: ANN401 - what plugins return
        """Serve a request, whose caller may name a task, and return what the plugin made of it.

        Raises:
            Exception: what the plugin or the host raised, or the engine, when it is to fail.

        """


@attrs.define
class Served:
    """``POST /pooling`` of the installed vLLM."""

    name: ClassVar[str] = "ServingPooling"
    _serving: Any
    _front: Any

    @classmethod
    def open(cls, around: Surroundings) -> Served:
        """Make vLLM's own handler of the route.

        Raises:
            Exception: this release makes it in another way.

        """
        from vllm.entrypoints.openai.models.protocol import BaseModelPath
        from vllm.entrypoints.openai.models.serving import OpenAIModelRegistry
        from vllm.entrypoints.pooling.pooling.serving import ServingPooling

        config = around.config
        models = OpenAIModelRegistry(
            config.model_config, [BaseModelPath(name="model", model_path="model")]
        )
        serving = ServingPooling(
            ScriptedEngine(config, around.renderer, around.admit),
            models,
            supported_tasks=("embed", "token_embed"),
            request_logger=None,
            chat_template_config=_chat_template_config(),
        )
        front = _front_end(around)
        serving.io_processors["plugin"] = front
        return cls(serving, front)

    async def serve(
        self,
        plugin: Watched,
        engine: ScriptedEngine,
        data: object,
        request_id: str,
        beside: Beside = (),
    ) -> Received:
        """Serve a request with vLLM's own handler."""
        self._serving.engine_client = engine
        self._front.io_processor = plugin
        response = await self._serving(request_of(data, beside), raw_request(request_id))
        return received(response)


@attrs.define
class Batched:
    """``LLM.encode`` of the installed vLLM."""

    _llm: Any
    _front: Any

    @classmethod
    def open(cls, around: Surroundings) -> Batched:
        """Make vLLM's own front end of offline inference.

        Raises:
            Exception: this release makes it in another way.

        """
        from vllm.entrypoints.pooling.offline import PoolingOfflineMixin

        front = _front_end(around)

        class Engineless(PoolingOfflineMixin):
            """``LLM`` without an engine behind it."""

            def __init__(self) -> None:
                self.runner_type = "pooling"
                self.failing = False
                self.plugin: Any = None
                self.supported_tasks = ("embed", "token_embed")
                self.pooling_io_processors = {"plugin": front}

            def _run_tiling_engine(
                self,
                io_processor: Any,  # noqa: ANN401 - vLLM's
                request_factory: Any,  # noqa: ANN401 - vLLM's
                *_: Any,  # noqa: ANN401 - the number of requests
                **__: Any,  # noqa: ANN401 - the progress bar
            ) -> list[PoolingRequestOutput]:
                outputs = []
                for request in request_factory():
                    rendered = io_processor.render(request)
                    rendered["params"].verify(around.config.model_config)
                    around.admit(rendered["prompts"])
                    name = numbered(self.plugin)
                    outputs.append(
                        output_of(name, rendered["prompts"], rendered["params"], around.config)
                    )
                if self.failing:
                    raise EngineFailed("the engine could not serve a prompt")
                return outputs

        return cls(Engineless(), front)

    def serve(
        self, plugin: Watched, data: object, *, failing: bool = False, task: str | None = None
    ) -> Any:  # noqa: ANN401 - what plugins return
        """Serve a request with vLLM's own code."""
        self._front.io_processor = plugin
        self._llm.failing, self._llm.plugin = failing, plugin
        return plain(encoded(self._llm, data, task))


@attrs.frozen
class Documented:
    """The host that the document describes: hooks are awaited, outputs come as they are ready."""

    name: ClassVar[str] = "the documented host"
    generation: str
    around: Surroundings

    async def serve(
        self,
        plugin: Watched,
        engine: ScriptedEngine,
        data: object,
        request_id: str,
        beside: Beside = (),
    ) -> Received:
        """Serve a request with the asynchronous hooks."""
        prompt, params = self.begin(plugin, request_of(data, beside), None)
        prompts = await plugin.pre_process_async(prompt=prompt, request_id=request_id)
        generators = [
            engine.encode(rendered, params, f"{request_id}-{index}")
            for index, rendered in enumerate(self.render(prompts))
        ]
        merged = merge_async_iterators(*generators)
        try:
            # Positional since 0.17, by keyword before.
            if self.generation == DATA:
                output = await plugin.post_process_async(merged, request_id=request_id)
            else:
                output = await plugin.post_process_async(model_output=merged, request_id=request_id)
        finally:
            del merged
        return self._respond(plugin, output, request_id)

    def begin(self, plugin: Watched, request: Any, params: PoolingParams | None) -> Any:  # noqa: ANN401 - what plugins return
        """Parse a request and ask for its parameters."""
        if self.generation == DATA:
            prompt = plugin.parse_data(request.data)
            asked = plugin.merge_pooling_params
        else:
            prompt = plugin.parse_request(request)
            asked = plugin.validate_or_generate_params
        merged = asked() if params is None else asked(params)
        if getattr(merged, "task", "") is None:
            merged.task = "plugin"
        return prompt, merged

    def render(self, prompts: object) -> list[Any]:
        """Render prompts as vLLM does.

        Raises:
            ValueError: there are none, or one is none that vLLM takes.

        """
        config, renderer = self.around.config, self.around.renderer
        parsed = [
            p if isinstance(p, bytes) else parse_model_prompt(config.model_config, p)
            for p in prompt_to_seq(prompts)
        ]
        if not parsed:
            raise ValueError("You must pass at least one prompt")
        params = renderer.default_cmpl_tok_params
        rendered = [renderer.render_cmpl(prompts=[p], tok_params=params)[0] for p in parsed]
        for each in rendered:
            self.around.admit(each)
        return rendered

    def _respond(self, plugin: Watched, output: object, request_id: str) -> Received:
        """Return what the client receives."""
        if self.generation == REQUEST:
            response = plugin.output_to_response(output)
            if not isinstance(response, response_class()):
                raise WrongResponse(response)
        else:
            response = response_class()(request_id=request_id, data=output)
        return received(written(response))


@attrs.frozen
class DocumentedOffline:
    """``LLM.encode`` as the document describes it."""

    online: Documented

    def serve(
        self, plugin: Watched, data: object, *, failing: bool = False, task: str | None = None
    ) -> Any:  # noqa: ANN401 - what plugins return
        """Serve a request with the synchronous hooks."""
        documented = self.online
        # Since 0.17 the plugin is handed what is in it.
        request = {"data": data} if documented.generation == REQUEST else request_of(data)
        prompt, params = documented.begin(plugin, request, PoolingParams(task=task))
        rendered = documented.render(plugin.pre_process(prompt=prompt))
        if failing:
            raise EngineFailed("the engine could not serve a prompt")
        config = documented.around.config
        outputs = [output_of(numbered(plugin), each, params, config) for each in rendered]
        with torch.inference_mode():
            return plain(plugin.post_process(model_output=outputs))


def numbered(plugin: Watched) -> str:
    """Return the name of an output of ``LLM``, which counts all prompts from the first on."""
    plugin.prompts += 1
    return str(plugin.prompts - 1)


def _front_end(around: Surroundings) -> Any:  # noqa: ANN401 - a class of vLLM
    """Return vLLM's own front end of plugins, which is handed each plugin that it is to have."""
    from vllm.entrypoints.pooling.base.io_processor import PoolingIOProcessor
    from vllm.entrypoints.pooling.pooling.io_processor import PluginWithIOProcessorPlugins

    # Its own constructor would find the plugin by an entry point; here it is at hand.
    front = PluginWithIOProcessorPlugins.__new__(PluginWithIOProcessorPlugins)
    PoolingIOProcessor.__init__(front, around.config, around.renderer, _chat_template_config())
    return front


def _chat_template_config() -> Any:  # noqa: ANN401 - a class of vLLM
    try:
        from vllm.renderers.chat_utils import ChatTemplateConfig
    except ImportError:  # up to 0.31
        from vllm.entrypoints.chat_utils import ChatTemplateConfig
    return ChatTemplateConfig()
