# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/batch`` about what ``apply`` does to logits."""

from __future__ import annotations

from conformance.logits.rules import means_what_is_expected
from conformance.logits_batch.catalogue.sources import ALL, ENGINE, RAISES, document, vllm
from conformance.rules import Rule, ends, section, sentence

RULES = section(
    "Logits",
    Rule(
        id="LB-05",
        title="A request that opts in is changed at least once",
        statement="Each parameter set that the profile declares as `on` changes a row.",
        sources=(
            document("The transformed logits tensor is then passed to softmax"),
            sentence(document("Return a transformed (num_requests) x (vocab_size) logits tensor")),
        ),
        hint="Check that apply returns the tensor it changed, and that the extra_args key is "
        "spelled as in the profile; parameters that act only after many tokens need a smaller "
        "value in the profile, and a processor that only observes has on = [].",
        evidence=ALL,
        resembles=("Entropic-Science/qr-sampler@db9c33c",),
    ),
    Rule(
        id="LB-12",
        title="A claim of argmax invariance is true",
        statement=(
            "A processor that claims it never changes which token has the highest logit, for any "
            "logits: ties, masked rows, negative and scaled ones included."
        ),
        sources=(
            sentence(
                document(
                    "never changes what is the highest-logit-value token ID for a given request"
                )
            ),
            vllm("v1/sample/sampler.py:Sampler.sample", "skipped when all requests are greedy"),
        ),
        hint="If the plugin masks, forces or biases tokens, return False: with True it is skipped "
        "for greedy requests.",
        evidence=ENGINE,
        resembles=("vllm-project/vllm#28617", "deepseek-ai/DeepSeek-OCR#231"),
    ),
    Rule(
        id="LB-14",
        title="apply returns a tensor of the shape, dtype and device it was given",
        statement="apply returns float logits [num_requests, vocab_size], in place or new ones.",
        sources=(
            sentence(document("Return a transformed (num_requests) x (vocab_size) logits tensor")),
            vllm(
                "v1/sample/logits_processor/interface.py:LogitsProcessor.apply",
                "the updated tensor must be returned but may be modified in-place",
            ),
        ),
        hint="Every path of apply must return a tensor, early returns included.",
        evidence=ENGINE,
    ),
    Rule(
        id="LB-16",
        title="update_state and apply never raise",
        statement="For requests that were admitted no call of the engine raises.",
        sources=(RAISES,),
        hint="Nothing catches it: one request's bad value ends all requests. Validate at "
        "admission, look up rows with .pop(index, None), and pin memory only where the "
        "constructor's is_pin_memory is True.",
        evidence=ALL,
        resembles=("Entropic-Science/qr-sampler@439e1b3", "vllm-project/vllm-metal#577"),
    ),
    Rule(
        id="LB-22",
        title="A token is left to sample, and no logit is NaN or +inf",
        statement=(
            "A row of finite logits keeps at least one token above -inf, no row gets NaN, masked "
            "rows included, and none that is sampled at random gets +inf."
        ),
        sources=(
            vllm(
                "v1/sample/sampler.py:Sampler.sample",
                "sampling from a row without a finite logit is undefined",
            ),
            vllm(
                "v1/sample/ops/topk_topp_sampler.py:TopKTopPSampler.forward_native",
                "the softmax of a row that holds +inf is NaN, and token 0 is sampled; only the "
                "kernel for CPUs takes the token of +inf",
            ),
        ),
        hint="Grammar and allowed-token masks put -inf into rows before the plugin sees them: "
        "(-inf) - (-inf) and 0 * inf are NaN. To force a token, put -inf on all others.",
        evidence=ENGINE,
    ),
    Rule(
        id="LB-28",
        title="A batch without an opted-in request comes back as it came",
        statement=(
            "Where no request in the batch enables the plugin, apply returns the very tensor it "
            "was given, without reading or copying it."
        ),
        sources=(
            document(
                "we recommend designing apply() to return the unmodified input tensor if all "
                "requests have the logits processor disabled"
            ),
        ),
        hint="Keep count of opted-in requests in update_state and return early in apply.",
    ),
    Rule(
        id="LB-34",
        title="Tokens that are masked stay masked",
        statement=(
            "A logit that is -inf when apply gets it is -inf when apply returns it: structured "
            "output, allowed tokens and bad words have been applied before."
        ),
        sources=(
            vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner.sample_tokens",
                "applies the grammar's bitmask before it samples",
            ),
            vllm(
                "v1/sample/sampler.py:Sampler.apply_logits_processors",
                "masks by allowed tokens and bad words before the custom processors",
            ),
        ),
        hint="Keep the value of a token that is to be forced instead of writing a constant; where "
        "it is -inf, leave the row alone.",
    ),
    Rule(
        id="LB-29",
        title="Logits may be a view with padded rows",
        statement=(
            "apply takes logits whose rows do not lie one after the other in memory, and runs "
            "under torch.inference_mode."
        ),
        sources=(
            vllm(
                "model_executor/layers/logits_processor.py:LogitsProcessor._get_logits",
                "a padded vocabulary is cut off by slicing, so float32 logits are a view",
            ),
            vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner.sample_tokens",
                "decorated with torch.inference_mode",
            ),
            RAISES,
        ),
        hint="Index by (row, token): view(-1) raises, and what is written to the copies that "
        "reshape(-1) and contiguous() make is lost. Do not use autograd, and let no thread of your "
        "own write to logits: inference mode is that of the thread which calls apply.",
        evidence=ENGINE,
    ),
    Rule(
        id="LB-44",
        title="What meets the logits is on their device",
        statement=(
            "Tensors that are used together with the logits are made on the device that the "
            "constructor was given, or moved there; torch can pin what is pinned for that."
        ),
        sources=(
            ends(
                vllm(
                    "v1/sample/logits_processor/__init__.py:build_logitsprocs",
                    "hands the device of the logits to the constructor; on a GPU torch raises "
                    "where an operation takes tensors of two devices, which ends the engine",
                )
            ),
            RAISES,
        ),
        hint="Pass device=self.device, or logits.device, to what makes a tensor. "
        "torch.from_numpy(array).pin_memory() pins a copy of an array; torch.tensor(array, "
        "pin_memory=True) raises. On a CPU such a mistake is not noticed; on a GPU the first step "
        "that gets there ends the engine.",
    ),
    means_what_is_expected("LB-46"),
)
