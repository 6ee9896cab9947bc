# SPDX-License-Identifier: Apache-2.0
"""A tiny random checkpoint of a model that hears: Qwen2-Audio."""

from __future__ import annotations

from pathlib import Path

from conformance.engine.checkpoints import (
    TEXT_SIZE,
    Draws,
    text_config,
    text_weights,
    token_ids,
    write_checkpoint,
)

#: Hertz of what the model hears; vLLM resamples what comes with another rate.
SAMPLING_RATE = 16_000

#: Seconds that are heard of a sound; the rest is cut off.
SECONDS = 30

QWEN2_AUDIO_TOKENS = ("<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>")

_SIZE = 32
_LAYERS = 2
_HEADS = 2
_INNER = 64
_MELS = 16
_FRAMES = 1500


def qwen2_audio(folder: Path) -> Path:
    """Write a Qwen2-Audio into a folder: 25 placeholders for each second of sound, at most 750.

    Text model and tokenizer are those of the tiny Llama with tokens for sounds.
    """
    _, audio, _ = token_ids(QWEN2_AUDIO_TOKENS).values()
    draws = Draws(93)
    _encoder(draws, "audio_tower")
    draws.linear("multi_modal_projector.linear", TEXT_SIZE, _SIZE)
    config = {
        "architectures": ["Qwen2AudioForConditionalGeneration"],
        "model_type": "qwen2_audio",
        "torch_dtype": "float32",
        "audio_token_index": audio,
        "tie_word_embeddings": False,
        "text_config": text_config("Qwen2ForCausalLM", "qwen2", QWEN2_AUDIO_TOKENS),
        "audio_config": {
            "model_type": "qwen2_audio_encoder",
            "num_mel_bins": _MELS,
            "encoder_layers": _LAYERS,
            "encoder_attention_heads": _HEADS,
            "encoder_ffn_dim": _INNER,
            "d_model": _SIZE,
            "max_source_positions": _FRAMES,
        },
    }
    features = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": _MELS,
        "sampling_rate": SAMPLING_RATE,
        "hop_length": 160,
        "chunk_length": SECONDS,
        "n_fft": 400,
        "padding_value": 0.0,
        "return_attention_mask": True,
    }
    processor = {"processor_class": "Qwen2AudioProcessor", "feature_extractor": features}
    return write_checkpoint(
        folder,
        config=config,
        weights=text_weights("language_model.", QWEN2_AUDIO_TOKENS, attention_bias=True)
        | draws.weights,
        extra=QWEN2_AUDIO_TOKENS,
        items={"audio": "".join(QWEN2_AUDIO_TOKENS)},
        documents={"processor_config.json": processor, "preprocessor_config.json": features},
    )


def _encoder(draws: Draws, name: str) -> None:
    draws.draw(f"{name}.conv1.weight", _SIZE, _MELS, 3)
    draws.draw(f"{name}.conv1.bias", _SIZE, scale=0.1)
    draws.draw(f"{name}.conv2.weight", _SIZE, _SIZE, 3)
    draws.draw(f"{name}.conv2.bias", _SIZE, scale=0.1)
    draws.draw(f"{name}.embed_positions.weight", _FRAMES, _SIZE, scale=0.5)
    for layer in range(_LAYERS):
        block = f"{name}.layers.{layer}"
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            draws.linear(f"{block}.self_attn.{part}", _SIZE, _SIZE, bias=part != "k_proj")
        draws.norm(f"{block}.self_attn_layer_norm", _SIZE)
        draws.norm(f"{block}.final_layer_norm", _SIZE)
        draws.linear(f"{block}.fc1", _INNER, _SIZE)
        draws.linear(f"{block}.fc2", _SIZE, _INNER)
    draws.norm(f"{name}.layer_norm", _SIZE)
