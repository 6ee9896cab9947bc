# SPDX-License-Identifier: Apache-2.0
"""What tests ask of a bridged model; runs in a fork that has imported vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.engine.multimodal_engine import MultiModalEngine
from conformance.multimodal.modality import media
from reference_plugins.bridge import register
from reference_plugins.bridge.checkpoint import write
from reference_plugins.modality import MultiModalConfig
from reference_plugins.modality.point_clouds import PointCloudPlugin, PointGroups

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

GROUPS = PointGroups(max_points=256, points_per_token=32)


class Clouds:
    """A model that wants point clouds, up to three of them."""

    @classmethod
    def get_multimodal_config(cls) -> MultiModalConfig:
        """Declare them."""
        return MultiModalConfig(
            ["point_cloud"],
            recipes={"point_cloud": GROUPS},
            placeholder_tokens={"point_cloud": 3},
            max_point_cloud_per_prompt=3,
        )

    @classmethod
    def get_dummy_item(cls, modality: str) -> Any:  # noqa: ANN401 - as clients send it
        """Return the largest cloud."""
        assert modality == "point_cloud"
        return np.zeros((256, 3))

    def get_multimodal_embeddings(self, points: Any) -> Any:  # noqa: ANN401 - arrays
        """Return the middle of each group."""
        return np.stack([points[at : at + 32].mean(axis=0) for at in range(0, len(points), 32)])


class Far(Clouds):
    """A model whose placeholder no tiny vocabulary has."""

    @classmethod
    def get_multimodal_config(cls) -> MultiModalConfig:
        """Declare it."""
        return MultiModalConfig(["point_cloud"], placeholder_tokens={"point_cloud": 9000})


class Without:
    """A model without a largest item."""

    get_multimodal_config = Clouds.get_multimodal_config


def cloud(points: int, seed: int = 0) -> Any:  # noqa: ANN401 - an array
    """Return random points."""
    return np.random.default_rng(seed).normal(size=(points, 3))


def _part(points: Any, **more: str) -> dict[str, Any]:  # noqa: ANN401 - an array, or none
    return {"type": "point_cloud_url", "point_cloud_url": points, **more}


def _said(call: Any) -> str:  # noqa: ANN401 - a function
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever vLLM raises
        return f"{type(error).__name__}: {error}"
    return "no error"


def refusals(connection: Connection) -> None:
    """Answer with what is said of models that cannot be served."""
    connection.recv()
    connection.send({"said": _said(lambda: register("Without", [PointCloudPlugin()], Without))})


def served(connection: Connection, folder: Path) -> None:
    """Answer with the tokens of prompts and chats, and what is said of bad ones."""
    from vllm import LLM, SamplingParams

    connection.recv()
    register("Far", [PointCloudPlugin()], Far)
    far = _said(
        lambda: LLM(
            str(write(folder / "far", "Far", ["point_cloud"])), kv_cache_memory_bytes=64 << 20
        )
    )
    register("Clouds", [PointCloudPlugin()], Clouds)
    model = write(folder / "clouds", "Clouds", ["point_cloud"])
    engine = MultiModalEngine.start(
        model, limits={"point_cloud": 3}, max_model_len=512, mode="modality"
    )
    llm, params = engine.llm, SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)

    def generate(text: str, items: list[Any], **more: Any) -> Any:  # noqa: ANN401 - an output
        prompt = {"prompt": text, "multi_modal_data": {"point_cloud": items}, **more}
        return llm.generate(prompt, params, use_tqdm=False)[0]

    def chat(*parts: Any) -> Any:  # noqa: ANN401 - an output
        message = {"role": "user", "content": list(parts)}
        return llm.chat([message], params, use_tqdm=False)[0]

    text = {"type": "text", "text": "what is this?"}
    small, large = cloud(40), cloud(400)
    picture = media.data_url(media.picture(9, 9), "image/png")
    as_prompt = generate("user: what is this?<point_cloud>assistant: ", [small])
    as_chat = chat(text, _part(small))
    named = chat(text, _part(small, uuid="mine"))
    again = chat(text, _part(None, uuid="mine"))
    connection.send(
        {
            "far": far,
            "sizes": {
                points: list(generate("a<point_cloud>b", [cloud(points)]).prompt_token_ids).count(3)
                for points in (1, 32, 33, 400)
            },
            "same": list(as_prompt.outputs[0].token_ids) == list(as_chat.outputs[0].token_ids),
            "prompts": (list(as_prompt.prompt_token_ids), list(as_chat.prompt_token_ids)),
            "named": list(named.outputs[0].token_ids) == list(again.outputs[0].token_ids),
            "order": [
                list(generate("<point_cloud>x<point_cloud>", pair).outputs[0].token_ids)
                for pair in ([small, large], [large, small])
            ],
            "text": list(chat(text).outputs[0].token_ids) != [],
            "errors": {
                "too many": _said(lambda: generate("<point_cloud>" * 4, [small] * 4)),
                "no cloud": _said(lambda: generate("<point_cloud>", [3])),
                "options": _said(
                    lambda: generate("<point_cloud>", [small], mm_processor_kwargs={"x": 1})
                ),
                "placeholder": _said(
                    lambda: chat({"type": "text", "text": "a <point_cloud>"}, _part(small))
                ),
                "unknown": _said(lambda: chat(text, _part(None, uuid="nobody's"))),
                "picture": _said(
                    lambda: chat(text, {"type": "image_url", "image_url": {"url": picture}})
                ),
            },
        }
    )
