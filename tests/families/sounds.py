# SPDX-License-Identifier: Apache-2.0
"""Models that hear."""

from __future__ import annotations

from typing import Any

from families.making import HIDDEN, SIZE, Family, ids, processing, text

_FRAMES = 1500
_MELS = 16

_HEARD: dict[str, Any] = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": _MELS,
    "sampling_rate": 16000,
    "hop_length": 160,
    "chunk_length": 30,
    "n_fft": 400,
    "padding_value": 0.0,
    "return_attention_mask": True,
}

_ENCODER: dict[str, Any] = {
    "num_mel_bins": _MELS,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": HIDDEN,
    "max_source_positions": _FRAMES,
}

_LAYERS: dict[str, Any] = {
    "num_mel_bins": _MELS,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": SIZE,
}


def whisper() -> Family:
    """Whisper, an encoder-decoder: its sound has a prompt of its own."""
    tokens = (
        "<|startoftranscript|>",
        "<|en|>",
        "<|transcribe|>",
        "<|translate|>",
        "<|notimestamps|>",
        "<|startoflm|>",
        "<|startofprev|>",
        "<|nospeech|>",
        "<|endoftext|>",
    )
    return Family(
        "whisper",
        "WhisperForConditionalGeneration",
        {
            "model_type": "whisper",
            "vocab_size": text(tokens)["vocab_size"],
            **_ENCODER,
            "d_model": HIDDEN,
            "decoder_layers": 2,
            "decoder_attention_heads": 2,
            "decoder_ffn_dim": HIDDEN,
            "max_target_positions": 448,
            "is_encoder_decoder": True,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 2,
            "decoder_start_token_id": ids(tokens)[tokens[0]],
            "num_hidden_layers": 2,
        },
        tokens,
        processing("WhisperProcessor", feature_extractor=_HEARD),
        requires=(),
    )


def audio_flamingo() -> Family:
    """Audio Flamingo 3."""
    tokens = ("<sound>",)
    return Family(
        "audio-flamingo-3",
        "AudioFlamingo3ForConditionalGeneration",
        {
            "model_type": "audioflamingo3",
            "audio_token_id": ids(tokens)["<sound>"],
            "text_config": text(tokens, "Qwen2", "qwen2"),
            "audio_config": {
                "model_type": "audioflamingo3_encoder",
                **_LAYERS,
                "intermediate_size": HIDDEN,
                "max_source_positions": _FRAMES,
            },
        },
        tokens,
        processing("AudioFlamingo3Processor", feature_extractor=_HEARD, audio_token="<sound>"),
        {"audio": "<sound>"},
        requires=(),
    )


def glm_asr() -> Family:
    """GLM-ASR."""
    tokens = ("<|pad|>",)
    return Family(
        "glm-asr",
        "GlmAsrForConditionalGeneration",
        {
            "model_type": "glmasr",
            "audio_token_id": ids(tokens)["<|pad|>"],
            "text_config": text(tokens),
            "audio_config": {
                "model_type": "glmasr_encoder",
                **_LAYERS,
                "num_key_value_heads": 2,
                "intermediate_size": 2 * HIDDEN,
                "max_position_embeddings": _FRAMES,
            },
        },
        tokens,
        processing("GlmAsrProcessor", feature_extractor=_HEARD, audio_token="<|pad|>"),
        {"audio": "<|pad|>"},
        requires=(),
    )


def qwen3_asr() -> Family:
    """Qwen3-ASR."""
    start, item, end = tokens = ("<|audio_start|>", "<|audio_pad|>", "<|audio_end|>")
    thinker = {
        "model_type": "qwen3_asr_thinker",
        "audio_start_token_id": ids(tokens)[start],
        "audio_token_id": ids(tokens)[item],
        "audio_end_token_id": ids(tokens)[end],
        "text_config": text(tokens, "Qwen3", "qwen3"),
        "audio_config": {
            "model_type": "qwen3_asr_audio_encoder",
            **_ENCODER,
            "d_model": SIZE,
            "output_dim": HIDDEN,
            "n_window": 50,
            "n_window_infer": 100,
            "downsample_hidden_size": 16,
            "conv_chunksize": 500,
            "num_hidden_layers": 2,
        },
    }
    return Family(
        "qwen3-asr",
        "Qwen3ASRForConditionalGeneration",
        {"model_type": "qwen3_asr", "thinker_config": thinker},
        tokens,
        processing("Qwen3ASRProcessor", feature_extractor=_HEARD),
        {"audio": "".join(tokens)},
        {"audio_token": item, "audio_bos_token": start, "audio_eos_token": end},
    )


FAMILIES = (whisper(), audio_flamingo(), glm_asr(), qwen3_asr())
