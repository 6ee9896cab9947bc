# SPDX-License-Identifier: Apache-2.0
"""llm_watermark, GPTWatermarkAdapterLogitsProcessor: set_watermark_config comes first.

As run_generate_vllm.py calls it, for the vocabulary of 500 tokens here.
"""

from gptwm_vllm_config import set_watermark_config

set_watermark_config(vocab_size=499, model_emb_length=500)

profile = {
    "logits-processor": {
        "on": [{"extra_args": {"watermark_key": 7}}, {"extra_args": {"watermark_key": 11}}],
        "off": [{}, {"extra_args": {"unrelated": 1}}],
    }
}
