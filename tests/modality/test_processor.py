# SPDX-License-Identifier: Apache-2.0
"""The pipeline: its order, its sums, and items that do not know of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.media import samples
from modality.deployments import (
    AUDIO,
    HIDDEN_SIZE,
    IMAGE,
    LlavaModel,
    encode,
    items,
    processor,
    registry,
    request,
)
from reference_plugins.modality import (
    Attachment,
    EstimateError,
    FixedResolution,
    ImageLimits,
    ImagePlugin,
    InputError,
    MultiModalConfig,
    MultiModalProcessor,
    MultiModalRegistry,
    Request,
    replace,
    request_from_messages,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference_plugins.modality import ModelConfig
    from reference_plugins.modality.arrays import Features
    from reference_plugins.modality.images import ImageItem

ITEMS = items()
ALONE = [processor().process(request(item)) for item in ITEMS]


@attrs.frozen
class WatchedPlugin(ImagePlugin):
    """Keeps a list of the methods that were called."""

    calls: list[str] = attrs.field(factory=list, eq=False)

    def get_max_per_prompt(self, model_config: ModelConfig) -> int:
        """Note the call."""
        self.calls.append("get_max_per_prompt")
        return super().get_max_per_prompt(model_config)

    def parse_input(self, data: object) -> ImageItem:
        """Note the call."""
        self.calls.append("parse_input")
        return super().parse_input(data)

    def validate(self, data: Sequence[ImageItem], limits: ImageLimits) -> None:
        """Note the call."""
        self.calls.append("validate")
        super().validate(data, limits)

    def estimate_tokens(self, data: ImageItem, model_config: ModelConfig) -> int:
        """Note the call."""
        self.calls.append("estimate_tokens")
        return super().estimate_tokens(data, model_config)

    def preprocess(self, data: ImageItem, model_config: ModelConfig) -> Features:
        """Note the call."""
        self.calls.append("preprocess")
        return super().preprocess(data, model_config)


def watched(max_model_len: int = 10_000) -> tuple[MultiModalProcessor, list[str]]:
    """Return the pipeline of LLaVA and the list of calls that its plugin will have seen."""
    known, plugin = MultiModalRegistry(), WatchedPlugin()
    known.register_plugin(plugin)
    known.register_model("llava", LlavaModel)
    config = known.get_model_config(
        "llava", max_model_len=max_model_len, limits={"image": ImageLimits(max_pixels=10_000)}
    )
    return MultiModalProcessor(known, config), plugin.calls


def test_the_steps_come_in_order() -> None:
    """Counting comes first, decoding last, and the tokens are known before anything is decoded."""
    pipeline, calls = watched()
    pipeline.process(request(Attachment("image", samples.image())))

    assert list(dict.fromkeys(calls)) == [
        "get_max_per_prompt",
        "parse_input",
        "validate",
        "estimate_tokens",
        "preprocess",
    ]


def test_capability_is_asked_before_any_work() -> None:
    """A prompt with one item that the model does not take costs nothing, whatever else it has."""
    pipeline, calls = watched()
    with pytest.raises(InputError, match="does not support audio; it supports image"):
        pipeline.process(Request((IMAGE, AUDIO), (ITEMS[0], ITEMS[4])))

    assert "parse_input" not in calls


def test_items_are_counted_before_any_is_fetched() -> None:
    """One item too many is refused before the first is parsed."""
    pipeline, calls = watched()
    with pytest.raises(InputError, match="the prompt has 3 items of image, of which 2 may be"):
        pipeline.process(request(*[ITEMS[0]] * 3))

    assert "parse_input" not in calls


def test_limits_are_checked_before_anything_is_decoded() -> None:
    """The deployment's limit is held against the header; the pixels are never looked at."""
    pipeline, calls = watched()
    with pytest.raises(InputError, match=r"image\[1\]: the image is 90 x 200 pixels, .* 10000"):
        pipeline.process(request(ITEMS[0], ITEMS[1]))

    assert "preprocess" not in calls


def test_the_length_is_known_before_anything_is_decoded() -> None:
    """Two images of 576 tokens and five of text do not fit into 1,156."""
    pipeline, calls = watched(max_model_len=1156)
    with pytest.raises(InputError, match="prompt would have 1157 tokens, of which 1156 may be"):
        pipeline.process(request(ITEMS[0], ITEMS[0]))

    assert "preprocess" not in calls


def test_a_llava_prompt_has_576_placeholders_for_each_image() -> None:
    """The article's example: text, then 576 placeholders from position 3, then text."""
    prompt = Request((1, 2, 3, IMAGE, 4), (ITEMS[0],))
    inputs = processor("llava").process(prompt)

    assert inputs.token_ids == (1, 2, 3, *[IMAGE] * 576, 4)
    assert [(place.offset, place.length) for place in inputs.placeholders] == [(3, 576)]
    assert inputs.estimate.total == 4 + 576


@given(st.permutations(range(len(ITEMS))), st.integers(1, len(ITEMS)))
@settings(max_examples=25, deadline=None)
def test_an_item_alone_is_the_item_among_others(order: list[int], count: int) -> None:
    """In any company and order an item has the arrays, the tokens and the hash it has alone."""
    chosen = order[:count]
    inputs = processor().process(request(*[ITEMS[number] for number in chosen]))

    for number, item, place in zip(chosen, inputs.items, inputs.placeholders, strict=True):
        alone = ALONE[number]
        assert alone.items[0].content_hash == item.content_hash
        assert alone.placeholders[0].length == place.length
        assert alone.items[0].features.keys() == item.features.keys()
        for name, array in item.features.items():
            np.testing.assert_array_equal(alone.items[0].features[name], array)


@given(st.permutations(range(len(ITEMS))))
@settings(max_examples=15, deadline=None)
def test_every_token_is_where_it_was_estimated(order: list[int]) -> None:
    """Estimate, prompt and embeddings agree, and text keeps its embeddings."""
    inputs = processor().process(request(*[ITEMS[number] for number in order]))
    text = np.full((len(inputs.token_ids), HIDDEN_SIZE), -7, dtype=np.float32)
    replaced = replace(text, inputs.placeholders, encode(inputs))

    assert inputs.estimate.total == len(inputs.token_ids)
    assert inputs.estimate.items == tuple(place.length for place in inputs.placeholders)
    from_text = (replaced == -7).all(axis=1)
    assert [bool(kept) for kept in from_text] == [token < IMAGE for token in inputs.token_ids]


def test_different_items_have_different_hashes() -> None:
    """Of seven items, and of the same under another recipe or model, no two share a hash."""
    hashes = [alone.items[0].content_hash for alone in ALONE]
    llava = processor("llava").process(request(ITEMS[0])).items[0].content_hash

    assert len({*hashes, llava}) == len(ITEMS) + 1


def test_the_recipe_is_part_of_the_hash() -> None:
    """A model that is deployed with another resolution finds nothing of the one before."""

    class LargerModel(LlavaModel):
        @classmethod
        def get_multimodal_config(cls) -> MultiModalConfig:
            recipe = FixedResolution(side=448)
            return MultiModalConfig(
                ["image"], recipes={"image": recipe}, placeholder_tokens={"image": IMAGE}
            )

    known = MultiModalRegistry()
    known.register_plugin(ImagePlugin())
    known.register_model("llava", LargerModel)
    larger = MultiModalProcessor(known, known.get_model_config("llava", max_model_len=9999))
    hashes = [
        pipeline.process(request(ITEMS[0])).items[0].content_hash
        for pipeline in (processor("llava"), larger)
    ]

    assert hashes[0] != hashes[1]


def test_the_same_request_gives_the_same_inputs() -> None:
    """A second pipeline, with plugins of its own, makes the same of it."""
    first = processor().process(request(*ITEMS))
    second = processor().process(request(*ITEMS))

    assert first == second


def test_nothing_of_the_inputs_can_be_changed() -> None:
    """Arrays, mappings and fields are read-only, also for whoever insists."""
    inputs = ALONE[0]
    array = inputs.items[0].features["pixel_values"]

    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0
    with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
        array.flags.writeable = True
    with pytest.raises(TypeError):
        inputs.items[0].features["pixel_values"] = array  # type: ignore[index]  # that is the point
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        inputs.token_ids = ()  # type: ignore[misc]  # that is the point


def test_the_clients_array_is_not_the_items() -> None:
    """A client that goes on drawing changes nothing that was parsed."""
    pixels = samples.pixels(40, 40)
    plugin = ImagePlugin()
    item = plugin.parse_input(pixels)
    pixels[:] = 0

    assert item == plugin.parse_input(samples.pixels(40, 40))
    assert np.asarray(plugin.decode(item)).any()


def test_an_error_names_the_item() -> None:
    """The second image of a request is `image[1]`, whatever stands between the two."""
    broken = Attachment("image", samples.image(64, 64)[:2000])
    with pytest.raises(InputError, match=r"^image\[1\]: the PNG file cannot be decoded: .*trunc"):
        processor().process(request(ITEMS[0], ITEMS[4], broken))


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        ((IMAGE, 5, IMAGE), "token 2 of the prompt is a placeholder of image, for which there is "),
        ((5,), r"image\[0\] has no placeholder: the prompt has 0, and the request 1 items"),
        ((5, AUDIO), r"token 1 .* placeholder of audio, where that of image\[0\] must be"),
    ],
)
def test_placeholders_and_items_of_a_request_fit(tokens: tuple[int, ...], sentence: str) -> None:
    """A placeholder that a user typed is refused, before it could move the items behind it."""
    with pytest.raises(InputError, match=sentence):
        processor().process(Request(tokens, (ITEMS[0],)))


def test_an_estimate_below_the_result_is_the_plugins_error() -> None:
    """It is no error of the client, and the message has item, estimate and result."""

    @attrs.frozen
    class Stingy(ImagePlugin):
        def estimate_tokens(self, data: ImageItem, model_config: ModelConfig) -> int:  # noqa: ARG002
            return 575

    known = MultiModalRegistry()
    known.register_plugin(Stingy())
    known.register_model("llava", LlavaModel)
    pipeline = MultiModalProcessor(known, known.get_model_config("llava", max_model_len=9999))
    with pytest.raises(
        EstimateError, match=r"image\[0\] takes 576 tokens, .* estimated 575"
    ) as error:
        pipeline.process(request(ITEMS[0]))

    assert not isinstance(error.value, InputError)


def test_chat_messages_become_a_request() -> None:
    """Text and items keep their order, and each plugin has the parts that it reads."""
    pipeline = processor()
    url = "data:image/png;base64,iVBORw0K"
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "ab"},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": url}},
                {"type": "text", "text": "c"},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            ],
        },
    ]
    made = request_from_messages(
        messages, pipeline.registry, pipeline.model_config, lambda text: [*text.encode()]
    )

    assert made.token_ids == (97, 98, IMAGE, 99, AUDIO)
    assert made.attachments == (
        Attachment("image", {"url": url}),
        Attachment("audio", {"data": "AAAA", "format": "wav"}),
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([{"type": "audio_url"}], "'llava' does not support a part of type 'audio_url'; it supp"),
        ([{"type": "smell_url"}], "does not support a part of type 'smell_url'"),
        ([{"text": "x"}], "does not support a part of type None"),
        ([{"type": "text", "text": 5}], "a part of type 'text' needs a text .got int."),
        (["x"], "message 0 needs text or a list of parts"),
        (None, "message 0 needs text or a list of parts"),
    ],
)
def test_strange_messages_are_the_clients_error(content: object, sentence: str) -> None:
    """What is no text and no part of the model's modalities is refused by its type."""
    config = registry().get_model_config("llava", max_model_len=9)
    with pytest.raises(InputError, match=sentence):
        request_from_messages([{"content": content}], registry(), config, lambda _text: [])
