# SPDX-License-Identifier: Apache-2.0
"""A tiny checkpoint of DuplexJev 0.3.0, without weights: what its configuration and processor need.

Shaped as the package's own code asks for: ``config.json`` of an Ultravox (duplexjev_vllm/model.py
builds on vLLM's), ``audio_config`` of its Qwen3ASREncoderConfig, WhisperFeatureExtractor with 30 s
chunks (processing.py), and the token ``<|audio|>``.
"""

from pathlib import Path

from conformance.engine.checkpoints import TEXT_SIZE, text_config, token_ids, write_checkpoint

TOKENS = ("<|audio|>",)
MELS = 16


def write(folder: Path) -> Path:
    """Write the checkpoint into a folder, and return it."""
    features = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": MELS,
        "sampling_rate": 16_000,
        "hop_length": 160,
        "chunk_length": 30,
        "n_fft": 400,
        "padding_value": 0.0,
        "return_attention_mask": True,
    }
    config = {
        "architectures": ["DuplexJevForConditionalGeneration"],
        "model_type": "ultravox",
        "torch_dtype": "float32",
        "audio_token_index": token_ids(TOKENS)["<|audio|>"],
        "vocab_size": text_config("", "llama", TOKENS)["vocab_size"],
        "hidden_size": TEXT_SIZE,
        "stack_factor": 2,
        "projector_ln_mid": True,
        "audio_config": {
            "model_type": "qwen3_asr_encoder_portable",
            "d_model": 32,
            "downsample_hidden_size": 16,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "encoder_layers": 2,
            "num_mel_bins": MELS,
        },
        "text_config": text_config("LlamaForCausalLM", "llama", TOKENS),
    }
    return write_checkpoint(
        Path(folder),
        config=config,
        weights={},
        extra=TOKENS,
        items={"audio": "<|audio|>"},
        documents={"preprocessor_config.json": features},
    )
