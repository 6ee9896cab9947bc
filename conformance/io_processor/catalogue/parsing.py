# SPDX-License-Identifier: Apache-2.0
"""Rules about what clients send: taken, refused, and left as it is."""

from __future__ import annotations

from conformance.io_processor.catalogue.sources import document, interface, vllm
from conformance.rules import EVERYWHERE, Rule, ends, section, sentence

_STATUS = vllm(
    "entrypoints/serve/exception_handling/error_response.py:create_error_response",
    "ValueError, TypeError and VLLMValidationError are the client's error; KeyError, RuntimeError "
    "and the rest are the server's",
)

RULES = section(
    "Parsing",
    Rule(
        id="IO-07",
        title="Valid requests are answered",
        statement=(
            "Every valid request is parsed, becomes prompts, and is answered: online with a "
            "request id of any kind, and offline without one; and not every one with nothing."
        ),
        sources=(
            sentence(
                document(
                    "The parse_request method is used for validating the user prompt and "
                    "converting it into the input expected by the pre_process"
                )
            ),
            vllm(
                "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
                "parse_data(request.data)",
                "0.17",
            ),
        ),
        hint="Run the request by hand: parse, pre_process, post_process; offline there is no "
        "request id. For the task plugin the simulator makes outputs up: a post_process that "
        "raises on them is not verified, and an engine with the plugin's own model shows it.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="IO-08",
        title="Invalid requests are refused",
        statement="A request that the profile calls invalid is not answered, online and offline.",
        sources=(
            sentence(
                document(
                    "it is up to the plugin to ensure the correct data is being fed to the model"
                )
            ),
            _STATUS,
        ),
        hint="Raise ValueError in parse_request or parse_data.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="IO-09",
        title="Whatever a client sends is answered or refused, not the client's own HTTP 500",
        statement=(
            "Missing, surplus and nested keys, other types, empty, huge and odd values end with an "
            "answer or with a status of 400 to 499, not with one of 500 and more; so do valid data "
            "with truncate_prompt_tokens or padding beside them."
        ),
        sources=(
            document("vLLM does not perform any validation of input/output data"),
            _STATUS,
            vllm(
                "entrypoints/pooling/pooling/protocol.py:IOProcessorRequest.build_tok_params",
                "vLLM cuts the plugin's prompts, or makes them longer, where the client asks for "
                "it: their outputs are then fewer tokens, or more",
            ),
        ),
        hint="Check type and presence before use: data['text'] raises KeyError, data.get raises "
        "AttributeError where data is a list; both are HTTP 500. In post_process, raise "
        "ValueError for outputs of prompts that came back cut or padded.",
    ),
    Rule(
        id="IO-38",
        title="No body ends, stalls or fills the server",
        statement=(
            "Of bodies up to a megabyte, odd or long at any place, none ends the process, or the "
            "engine with a prompt that it cannot decode; none makes a hook ask for more than "
            "2 GiB, and none takes 10 seconds, unless the time grows no faster than the body; none "
            "makes a hook wait without a time limit for a server that the client names; none "
            "closes a file or socket that is not its own; in engines and servers none changes "
            "what others are answered."
        ),
        sources=(
            vllm(
                "entrypoints/pooling/base/serving.py:PoolingBaseServing._preprocessing",
                "parse_data and pre_process run on the event loop of all clients",
                "0.27",
            ),
            ends(
                vllm(
                    "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
                    "the hooks run in the API server's process",
                )
            ),
            ends(
                vllm(
                    "v1/engine/core.py:EngineCoreProc.process_input_sockets",
                    "a request that cannot be decoded, for a token id that is no int or a "
                    "cache_salt that is no text, ends the thread that receives all requests",
                )
            ),
            document("vLLM does not perform any validation of input/output data"),
        ),
        hint="Check the type of whatever goes into a prompt; bound every number and length before "
        "a loop, an allocation or a pattern uses it; let no pattern repeat what it repeats "
        "already; give whatever fetches a time limit; open no path that is not a text; never end "
        "the process.",
        evidence=EVERYWHERE,
        resembles=("vllm-project/vllm#26139", "vllm-project/vllm#16643"),
    ),
    Rule(
        id="IO-10",
        title="Bad input is refused before the engine works for it",
        statement=(
            "An invalid request, of the profile or any other, is refused by parsing or "
            "pre_process, not by post_process."
        ),
        sources=(
            document("The parse_request method is used for validating the user prompt"),
            interface("parse_data(data) -> IOProcessorInput"),
        ),
        hint="Move the check from post_process to parse_request or parse_data.",
    ),
    Rule(
        id="IO-11",
        title="The client's data are left as they are",
        statement="Serving a request does not change the data that it was made with.",
        sources=(
            vllm(
                "entrypoints/pooling/offline.py:PoolingOfflineMixin.encode",
                "offline the data are the caller's own object",
            ),
        ),
        hint="Copy before pop, update, append or sort.",
    ),
    Rule(
        id="IO-12",
        title="parse_request takes every form in which hosts hand over data",
        statement=(
            "parse_request gives the same for the request object of the server, for the dictionary "
            "with data in it of offline inference, and for the bare data of vLLM 0.17 to 0.28."
        ),
        sources=(
            document("def parse_request(self, request: Any)"),
            vllm(
                "plugins/io_processors/interface.py:IOProcessor.parse_data",
                "calls parse_request(data) for plugins of the documented generation",
                "0.17 to 0.28",
            ),
        ),
        hint="Unwrap request.data and request['data'] before parsing.",
    ),
)
