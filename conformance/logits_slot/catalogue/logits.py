# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/slot`` about the logits themselves."""

from __future__ import annotations

from conformance.logits.rules import means_what_is_expected
from conformance.logits_slot.catalogue.sources import ALL, ENGINE, interface, vllm
from conformance.rules import Rule, ends, section, sentence

RULES = section(
    "Processed logits",
    Rule(
        id="LS-05",
        title="The plugin acts on requests that opt in",
        statement="Each parameter set of the profile changes a row somewhere.",
        sources=(
            sentence(
                interface("LogitsProcessor.apply", "Modify logits in place or return a new tensor")
            ),
        ),
        hint="Check the names and types of arguments in the profile, and that add_request returns "
        "True; a processor that only observes has on = [].",
        evidence=ALL,
    ),
    Rule(
        id="LS-15",
        title="The same request gets the same rows again",
        statement=(
            "Without others, a request with the same parameters and tokens gets the same rows, and "
            "global random generators are left alone."
        ),
        sources=(
            vllm(
                "sampling_params.py:SamplingParams", "seed: Random seed to use for the generation"
            ),
        ),
        hint="Draw from a generator of the request's own, seeded by its parameters.",
    ),
    Rule(
        id="LS-19",
        title="Tokens that a grammar masked stay masked",
        statement="A logit that is -inf before apply is -inf after it.",
        sources=(
            interface("LogitsProcessor", "must not re-inflate grammar-masked tokens"),
            vllm(
                "v1/core/sched/scheduler.py:Scheduler.update_from_output",
                "a request whose grammar rejects its token is terminated, and no other one",
            ),
        ),
        hint="Mask others instead of writing a value to a favoured token, or keep -inf with where. "
        "Only a SHOULD, as LB-34 is: no other request notices.",
    ),
    Rule(
        id="LS-20",
        title="apply returns float32 logits of the same shape on the same device",
        statement="The result is a float32 tensor [rows, vocab_size] on the device of the logits.",
        sources=(
            sentence(
                interface("LogitsProcessor.apply", "[num_logits_rows, vocab_size] float32 tensor")
            ),
        ),
        hint="Return the tensor, also where nothing was changed.",
        evidence=ENGINE,
    ),
    Rule(
        id="LS-21",
        title="A token is left to sample, and no logit is NaN or +inf",
        statement=(
            "Every row that was changed keeps a finite logit and holds no NaN, and none that is "
            "sampled at random holds +inf."
        ),
        sources=(
            vllm("v1/worker/gpu/sample/gumbel.py:gumbel_sample", "the largest logit is taken"),
            vllm(
                "v1/worker/gpu/spec_decode/rejection_sampler_utils.py:rejection_sample",
                "in a row that holds +inf the probability of a draft is NaN: it is rejected, and "
                "its token is never sampled in its place",
            ),
        ),
        hint="Beware of -inf - -inf, of 0 * inf, and of masks that leave nothing. To force a "
        "token, put -inf on all others.",
    ),
    Rule(
        id="LS-28",
        title="apply never waits for the device",
        statement=(
            "No operation of apply makes the host wait: item(), tolist(), nonzero(), boolean masks "
            "as an index."
        ),
        sources=(
            interface("LogitsContext", "on the host, for skipping work without a device sync"),
        ),
        hint="Use ctx.idx_mapping_np for decisions on the host and torch.where for rows.",
    ),
    Rule(
        id="LS-42",
        title="What meets the logits is on their device",
        statement=(
            "Tensors that are used together with the logits, the request states or the context "
            "are made on req_states.device, or moved there; torch can pin what is pinned for that."
        ),
        sources=(
            interface(
                "LogitsProcessor.__init__",
                "exposes the on-device token history and batch constants a processor may read",
            ),
            ends(
                vllm(
                    "v1/worker/gpu/model_runner.py:GPUModelRunner.sample",
                    "logits, states and context are on the GPU; torch raises where an operation "
                    "takes tensors of two devices, which ends the engine",
                )
            ),
        ),
        hint="Pass device=req_states.device to what makes a tensor, and use ctx.idx_mapping_np for "
        "arrays of the host. torch.from_numpy(array).pin_memory() pins a copy of an array; "
        "torch.tensor(array, pin_memory=True) raises. On a CPU such a mistake is not noticed.",
    ),
    means_what_is_expected("LS-43"),
)
