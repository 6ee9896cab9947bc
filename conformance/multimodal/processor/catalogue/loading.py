# SPDX-License-Identifier: Apache-2.0
"""Rules about being found, made and asked."""

from __future__ import annotations

from conformance.multimodal.processor.catalogue.sources import ALL, SUPPORTED, processing, vllm
from conformance.rules import Rule, Source, ends, section, sentence
from conformance.watching import sharing

RULES = section(
    "Loading",
    Rule(
        id="MM-01",
        title="vLLM can make the processor",
        statement=(
            "MULTIMODAL_REGISTRY makes the processor, its processing info and its dummy inputs "
            "builder for a configuration of the model."
        ),
        evidence=ALL,
        sources=(
            sentence(
                vllm(
                    "multimodal/registry.py:_ProcessorFactories.build_processor",
                    "info(ctx), dummy_inputs(info), processor(info, dummy_inputs_builder)",
                    "0.31",
                )
            ),
        ),
        hint="The constructor takes (info, dummy_inputs); up to 0.30 it took a cache as well.",
        resembles=("microsoft/VibeVoice#396",),
    ),
    Rule(
        id="MM-02",
        title="vLLM can make, run and load the model",
        statement=(
            "The class says supports_multimodal, defines embed_multimodal, embed_input_ids and "
            "get_placeholder_str; vLLM makes a model of it, runs it on embeddings, and loads the "
            "weights of its checkpoint."
        ),
        sources=(
            sentence(
                vllm(
                    "model_executor/models/interfaces.py:SupportsMultiModal",
                    "The interface required for all multi-modal models",
                    "0.11",
                )
            ),
            vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner._dummy_run",
                "every engine runs its model on embeddings before it serves anything",
                "0.11",
            ),
        ),
        hint="Derive from SupportsMultiModal and take (vllm_config, prefix) by keyword.",
    ),
    Rule(
        id="MM-03",
        title="Modalities and their limits are declared",
        statement=(
            "get_supported_mm_limits names at least one modality, each with None or the number of "
            "items that a prompt may have."
        ),
        sources=(
            sentence(
                processing(
                    "context.py:BaseProcessingInfo.get_supported_mm_limits",
                    "A value of None means unlimited number of items",
                )
            ),
        ),
        hint="Return a dictionary such as {'image': None, 'audio': 1}.",
    ),
    Rule(
        id="MM-11",
        title="Every modality that is declared is served",
        statement="A prompt with one item of a modality that is declared is processed.",
        sources=(
            processing(
                "processor.py:BaseMultiModalProcessor._validate_mm_updates",
                "Expected there to be N prompt updates corresponding to N items",
            ),
            sentence(SUPPORTED),
        ),
        hint=(
            "Every modality needs a parser, fields in _get_mm_fields_config, an update in "
            "_get_prompt_updates and a dummy item."
        ),
        resembles=("vllm-project/vllm#15338",),
    ),
    Rule(
        id="MM-85",
        title="What the profile names is taken",
        statement=(
            "Items and forms that a profile names are processed alone, and with each of its "
            "options some item of each modality is."
        ),
        sources=(
            sentence(Source("the plugin's profile", "items, forms and options: what it takes")),
        ),
        hint="One of the two is wrong: the processor, or the profile.",
    ),
)

SURVIVES = Rule(
    id="MM-09",
    title="The plugin never ends or hangs its process",
    statement=(
        "Every call into the processor and the model returns, or raises an exception; of an "
        "engine's calls into the model none raises one, since that ends the engine."
    ),
    section="Loading",
    evidence=ALL,
    sources=(
        ends(
            vllm(
                "renderers/base.py:BaseRenderer._process_multimodal",
                "processors run in the front end, one after the other, for all requests",
            )
        ),
    ),
    hint="Look for loops without an end, and for sys.exit; in the model for whatever raises: what "
    "may be wrong with an item is the processor's to refuse.",
)

FITS = Rule(
    id="MM-19",
    title="No item stalls or fills the server",
    statement=(
        "An item of some megabytes at the most, however thin, long or short it is, is processed "
        "or refused within 2 GiB of memory and 10 s of processor time."
    ),
    section="Loading",
    sources=SURVIVES.sources,
    hint="Bound both sides, and their ratio, before anything is scaled, padded or compared. "
    "Options are the deployment's: without --trust-request-mm-kwargs vLLM refuses a client's.",
)

SHARES = sharing.leaves_others_alone(
    "MM-79",
    *sharing.FRONT_END,
    vllm(
        "multimodal/registry.py:_ProcessorFactories.build_processor",
        "the front end makes the processor; the engine loads the module as well, with its model",
        "0.31",
    ),
    where=sharing.IN_FRONT_END,
    heading="Loading",
)

CONFIGURED = sharing.same_in_servers("MM-86", heading="Loading")
