# SPDX-License-Identifier: Apache-2.0
"""Rules about what clients send: taken, refused, and left as it is."""

from __future__ import annotations

from conformance.io_processor.catalogue.sources import ALL, document, interface, vllm
from conformance.rules import Level, Rule

SECTION = "Parsing"

_STATUS = vllm(
    "entrypoints/serve/exception_handling/error_response.py:create_error_response",
    "ValueError, TypeError and VLLMValidationError are the client's error; KeyError, RuntimeError "
    "and the rest are the server's",
)

ANSWERS = Rule(
    id="IO-07",
    title="Valid requests are answered",
    statement=(
        "Every valid request is parsed, becomes prompts, and is answered: online with a request "
        "id, and offline without one."
    ),
    level=Level.MUST,
    section=SECTION,
    sources=(
        document(
            "The parse_request method is used for validating the user prompt and converting it "
            "into the input expected by pre_process"
        ),
        vllm(
            "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
            "parse_data(request.data)",
            "0.17",
        ),
    ),
    hint="Run the request by hand: parse, pre_process, post_process; offline there is no request "
    "id. For the task plugin the simulator makes outputs up: a post_process that raises on them is "
    "not verified, and an engine with the plugin's own model shows it.",
    evidence=ALL,
)

REFUSES = Rule(
    id="IO-08",
    title="Invalid requests are the client's error",
    statement=(
        "A request that the profile calls invalid ends with HTTP status 400 to 499, and offline "
        "with an exception that means the same."
    ),
    level=Level.MUST,
    section=SECTION,
    sources=(
        document("it is up to the plugin to ensure the correct data is being fed to the model"),
        _STATUS,
    ),
    hint="Raise ValueError in parse_request or parse_data.",
    evidence=ALL,
)

HOSTILE = Rule(
    id="IO-09",
    title="Whatever a client sends is answered or refused, never the server's error",
    statement=(
        "Missing, surplus and nested keys, other types, empty, huge and odd values end with an "
        "answer or with a status of 400 to 499; never with one of 500 and more."
    ),
    level=Level.MUST,
    section=SECTION,
    sources=(
        document("vLLM does not perform any validation of input/output data"),
        _STATUS,
    ),
    hint="Check type and presence before use: data['text'] raises KeyError, data.get raises "
    "AttributeError where data is a list; both are HTTP 500.",
)

EARLY = Rule(
    id="IO-10",
    title="Bad input is refused before the engine works for it",
    statement="An invalid request is refused by parsing or pre_process, not by post_process.",
    level=Level.SHOULD,
    section=SECTION,
    sources=(
        document("The parse_request method is used for validating the user prompt"),
        interface("parse_data(data) -> IOProcessorInput"),
    ),
    hint="Move the check from post_process to parse_request or parse_data.",
)

PURE = Rule(
    id="IO-11",
    title="The client's data are left as they are",
    statement="Serving a request does not change the data that it was made with.",
    level=Level.MUST,
    section=SECTION,
    sources=(
        vllm(
            "entrypoints/pooling/offline.py:PoolingOfflineMixin.encode",
            "offline the data are the caller's own object",
        ),
    ),
    hint="Copy before pop, update, append or sort.",
)

FORMS = Rule(
    id="IO-12",
    title="parse_request takes every form in which hosts hand over data",
    statement=(
        "parse_request gives the same for the request object of the server, for the dictionary "
        "with data in it of offline inference, and for the bare data of vLLM 0.17 to 0.28."
    ),
    level=Level.SHOULD,
    section=SECTION,
    sources=(
        document("def parse_request(self, request: Any)"),
        vllm(
            "plugins/io_processors/interface.py:IOProcessor.parse_data",
            "calls parse_request(data) for plugins of the documented generation",
            "0.17 to 0.28",
        ),
    ),
    hint="Unwrap request.data and request['data'] before parsing.",
)
