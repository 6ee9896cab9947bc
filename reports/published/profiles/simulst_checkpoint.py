# SPDX-License-Identifier: Apache-2.0
"""A tiny checkpoint of simulst 0.1.0, without weights: what its configuration and processor need.

Shaped as the package's own code asks for: a flat ``hy_v3`` configuration with ``audio_config`` and
``audio_token_id`` (processing.py), a WhisperFeatureExtractor's ``preprocessor_config.json``, and a
chat template that begins with the package's marker (chat_template.py, ``assets_installed``).
"""

import json
from pathlib import Path

from conformance.engine.checkpoints import TEXT_SIZE, text_config, token_ids, write_checkpoint

_NAME = "<\uff5chy_place\u2581holder\u2581no\u2581{}\uff5c>"
BEGIN, AUDIO, END = map(_NAME.format, (6, 5, 8))
TOKENS = (BEGIN, AUDIO, END)
MARKER = "{#- simulst-mm openai chat branch v2 #}"
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
    config = text_config("HYV3SpeechForCausalLM", "hy_v3", TOKENS) | {
        "audio_token_id": token_ids(TOKENS)[AUDIO],
        "turn_end_token_id": 10,
        "first_k_dense_replace": 1,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "num_shared_experts": 1,
        "expert_hidden_dim": 32,
        "route_norm": True,
        "audio_config": {
            "num_mel_bins": MELS,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "d_model": 32,
            "downsample_hidden_size": 16,
            "output_dim": 32,
            "llm_dim": TEXT_SIZE,
            "fsk_size": 2,
        },
    }
    written = write_checkpoint(
        Path(folder),
        config=config,
        weights={},
        extra=TOKENS,
        items={"audio": BEGIN + AUDIO + END},
        documents={"preprocessor_config.json": features},
    )
    settings = written / "tokenizer_config.json"
    document = json.loads(settings.read_text(encoding="utf-8"))
    template = MARKER + document.pop("chat_template")
    settings.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    (written / "chat_template.jinja").write_text(template, encoding="utf-8")
    return written
