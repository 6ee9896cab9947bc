# SPDX-License-Identifier: Apache-2.0
"""Rules about outputs and what is made of them."""

from __future__ import annotations

from conformance.io_processor.catalogue.sources import document, interface, vllm
from conformance.rules import IN_ENGINES, SERVED, Rule, Source, section, sentence

RULES = section(
    "Outputs and responses",
    Rule(
        id="IO-17",
        title="The answer does not depend on the order in which outputs arrive",
        statement=(
            "post_process_async gives the same for outputs that arrive in any order, late or one "
            "by one, as for outputs that arrive in the order of the prompts."
        ),
        sources=(
            sentence(
                document(
                    "We cannot guarantee outputs are returned in the same order they were ... fed "
                    "to vLLM"
                )
            ),
            interface("post_process_async sorts by index"),
        ),
        hint="Sort by the index that comes with each output before using them.",
        evidence=SERVED,
    ),
    Rule(
        id="IO-18",
        title="The awaited hooks do what the others do",
        statement=(
            "pre_process_async gives the prompts of pre_process, and post_process_async the result "
            "of post_process."
        ),
        sources=(
            interface("pre_process_async returns pre_process(...)"),
            interface("post_process_async ends with post_process(collected_output, ...)"),
        ),
        hint="vLLM calls one or the other, by release and by front end: put the work in one place.",
    ),
    Rule(
        id="IO-19",
        title="Every output is used",
        statement="post_process reads the output of every prompt of its request.",
        sources=(
            document(
                "The post_process methods take PoolingRequestOutput objects as input and generate "
                "a custom plugin output"
            ),
        ),
        hint="Look at the bounds of loops and slices over model_output.",
    ),
    Rule(
        id="IO-20",
        title="Errors of the engine reach the client, and nothing is left open",
        statement=(
            "When an output does not come because the engine failed, post_process_async lets the "
            "error through, and closes the generator that it was given."
        ),
        sources=(
            interface("post_process_async(model_output: AsyncGenerator)"),
            vllm(
                "utils/async_utils.py:merge_async_iterators", "ends its iterators when it is closed"
            ),
        ),
        hint="Do not catch exceptions around the loop over model_output, and do not keep it.",
    ),
    Rule(
        id="IO-21",
        title="Outputs are left as they are",
        statement="post_process does not change the outputs that it is given.",
        sources=(vllm("outputs.py:PoolingRequestOutput", "the engine's own object"),),
        hint="Clone a tensor before changing it in place.",
    ),
    Rule(
        id="IO-22",
        title="The server can write the response",
        statement="What the plugin answers can be written as JSON in the way of the server.",
        sources=(
            vllm(
                "entrypoints/pooling/pooling/serving.py:ServingPooling._build_response",
                "IOProcessorResponse(...).model_dump() as JSON",
            ),
            sentence(
                document(
                    "converts the plugin output to the IOProcessorResponse type that is then "
                    "returned by the API Server"
                )
            ),
        ),
        hint="Turn tensors and arrays into lists, bytes into base64, NaN into None.",
    ),
    Rule(
        id="IO-23",
        title="output_to_response returns an IOProcessorResponse",
        statement="output_to_response turns what post_process gave into an IOProcessorResponse.",
        sources=(
            sentence(
                document(
                    "The output_to_response method is used only for online serving and converts "
                    "the plugin output to the IOProcessorResponse type"
                )
            ),
        ),
        hint="Return IOProcessorResponse(request_id=..., data=...), not the bare data.",
    ),
    Rule(
        id="IO-24",
        title="The same request gets the same answer",
        statement=(
            "Answers do not contain chance, a clock or a counter, nor values in the order in which "
            "threads of the plugin's own are ready, or a set gives them: that of texts is another "
            "one in each process."
        ),
        sources=(interface("post_process is a function of the outputs"),),
        hint="Clients retry and cache: leave out times, random names and numbers of the request; "
        "put together what threads of your own make in the order of the outputs; sort what comes "
        "out of a set.",
    ),
    Rule(
        id="IO-25",
        title="Offline and online give the same",
        statement=(
            "Without a request id the plugin makes of a request what it makes of it with one, but "
            "for texts that tell the id."
        ),
        sources=(
            vllm(
                "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
                "offline there is no request_id",
            ),
            vllm(
                "entrypoints/pooling/pooling/protocol.py:IOProcessorResponse",
                "request_id: the request_id associated with this response",
            ),
        ),
        hint="Do not look up what to do by the request id.",
    ),
    Rule(
        id="IO-40",
        title="Answers are what the author says they are",
        statement=(
            "Where a profile has `expected`, every valid request is answered what this function "
            "returns for its data and outputs: alone, among others, by the awaited hooks, offline "
            "and in an engine."
        ),
        sources=(sentence(Source("the plugin's profile", "expected: what the plugin means")),),
        hint="One of the two is wrong: the plugin, or the function.",
        evidence=IN_ENGINES,
    ),
)
