# SPDX-License-Identifier: Apache-2.0
"""Rules about loading, construction, selection and how the hooks are called."""

from __future__ import annotations

from conformance.io_processor.catalogue.sources import document, interface, vllm
from conformance.rules import EVERYWHERE, Evidence, Rule, ends, section, sentence

RULES = section(
    "Loading and calling",
    Rule(
        id="IO-01",
        title="The class loads in every documented way",
        statement=(
            "The target imports, is a concrete subclass of "
            "vllm.plugins.io_processors.interface.IOProcessor, and vLLM finds it by the dotted "
            "name that its entry point's function returns; an engine and a server start with it."
        ),
        sources=(
            sentence(document("IO Processor plugins implement the ... interface")),
            vllm(
                "plugins/io_processors/__init__.py:get_io_processor",
                "the entry point is a function that returns the name of the class",
            ),
        ),
        hint="Check the base class, the abstract methods, and that the entry point's function "
        "returns 'package.module.Class' with dots; a class inside a class is not found.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="IO-02",
        title="The constructor takes what the host hands over, any number of times",
        statement=(
            "Instances are made with (vllm_config) in the documented generation and with "
            "(vllm_config, renderer) since 0.17, more than once in a process, and the "
            "configuration is left as it was."
        ),
        sources=(
            sentence(document("def __init__(self, vllm_config: VllmConfig)")),
            vllm(
                "plugins/io_processors/__init__.py:get_io_processor",
                "activated_plugin_cls(vllm_config, renderer)",
                "0.17",
            ),
        ),
        hint="Give the constructor the parameters of its generation; (vllm_config, renderer=None) "
        "serves both.",
    ),
    Rule(
        id="IO-03",
        title="The constructor takes a renderer, too",
        statement=(
            "vLLM 0.17 to 0.28 still call parse_request, and make the plugin with "
            "(vllm_config, renderer); a constructor with an optional second parameter loads there."
        ),
        sources=(
            vllm(
                "plugins/io_processors/__init__.py:get_io_processor",
                "activated_plugin_cls(vllm_config, renderer)",
                "0.17",
            ),
        ),
        hint="Write def __init__(self, vllm_config, renderer=None).",
    ),
    Rule(
        id="IO-04",
        title="The plugin serves however it is selected",
        statement=(
            "An engine with the plugin's name in the engine arguments, one whose model names it in "
            "config.json, and one where the argument overrides another name in config.json answer "
            "the same."
        ),
        sources=(
            sentence(
                document(
                    "setting the plugin name via EngineArgs will override any plugin name ... in "
                    "the model HF config"
                )
            ),
            vllm(
                "plugins/io_processors/__init__.py:get_io_processor", "plugin_from_init comes first"
            ),
        ),
        hint="Do not read the plugin's own name from the configuration: either place may have it.",
        evidence=(Evidence.OFFLINE,),
    ),
    Rule(
        id="IO-05",
        title="The hooks can be called as the hosts call them",
        statement=(
            "pre_process takes prompt and request_id by keyword, and prompt alone; post_process "
            "takes the outputs by position with and without request_id; their awaited forms take "
            "the same, the outputs also as model_output."
        ),
        sources=(
            sentence(interface("pre_process(prompt, request_id=None, **kwargs)")),
            vllm(
                "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
                "pre_process(prompt=..., request_id=...), offline pre_process(prompt=...)",
            ),
        ),
        hint="Keep the parameter names of the interface, and the default of request_id.",
    ),
    Rule(
        id="IO-06",
        title="Awaited hooks can be awaited",
        statement=(
            "What pre_process_async and post_process_async return, where overridden, can be "
            "awaited."
        ),
        sources=(
            sentence(document("async def pre_process_async")),
            interface("async def post_process_async"),
        ),
        hint="Write async def.",
    ),
)

SURVIVES = Rule(
    id="IO-37",
    title="Calls return, and the process lives",
    statement=(
        "No call hangs, and none ends the process, as requests are served, refused, failed and "
        "cancelled."
    ),
    section="Loading and calling",
    sources=(
        ends(
            vllm(
                "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
                "the hooks run in the API server's process",
            )
        ),
    ),
    hint="Look for loops that wait, locks that are not released, and sys.exit.",
    evidence=EVERYWHERE,
)
