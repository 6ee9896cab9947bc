# SPDX-License-Identifier: Apache-2.0
"""The rules about what all code of a process shares, and about several processes.

A family says under which number it has it, and where in vLLM others come to harm: processors of
logits are loaded by the engine, all other plugins by the front end.
"""

from __future__ import annotations

from conformance.rules import Evidence, Rule, Source, changes, ends

#: What is added for plugins that the front end loads.
IN_FRONT_END = (
    " The process is that of the front end: the API server's, or offline the caller's program."
)

#: Where others come to harm by a plugin that the front end loads.
FRONT_END = (
    ends(
        Source(
            "vllm/entrypoints/launchers/api_server/entry.py:run_server",
            "SIGTERM interrupts a server that is still starting, which loads its plugins; it ends "
            "by returning, and Python then waits for every thread that is no daemon",
        )
    ),
    changes(
        Source(
            "vllm/v1/sample/ops/topk_topp_sampler.py:random_sample",
            "requests without a seed draw from the global generator of torch, that of the front "
            "end where VLLM_ENABLE_V1_MULTIPROCESSING is 0; in any case it is the caller's",
        )
    ),
    changes(
        Source(
            "vllm/model_executor/models/minicpmv4_7.py:_assign_canvas_span",
            "torch.linspace without a dtype: positions in pictures depend on the default",
        )
    ),
)


#: What is added where requests are served as well, and the title of the rule then.
SERVING = " Nor does serving a request change any of that."
BOTH = "Loading and serving leave to others what all requests share"


def leaves_others_alone(
    rule_id: str,
    *sources: Source,
    title: str = "Loading leaves to others what all requests share",
    where: str = "",
    heading: str = "",
) -> Rule:
    """Return the rule.

    Args:
        rule_id: its number in the family.
        sources: where it comes from, with the harm to others.
        title: the rule in a line.
        where: a sentence that says in which process plugins are loaded, or what else counts.
        heading: what reports put the rule under, where no section does.

    """
    return Rule(
        id=rule_id,
        title=title,
        statement=(
            "Importing the module and making instances seeds no global generator of random "
            "numbers, leaves torch's default dtype and device as they are and its deterministic "
            "algorithms off, takes SIGTERM and SIGINT from no handler, raises Python's limit of "
            "recursion to 50,000 at the most, and leaves no thread and no process that keeps the "
            "engine from ending or outlives it." + where
        ),
        section=heading,
        sources=sources,
        evidence=(Evidence.SIMULATOR,),
        hint="Draw from a torch.Generator, random.Random or numpy.random.default_rng of your own; "
        "pass dtype and device to what makes tensors; make threads daemons, and end children in "
        "atexit; hand signals on to the handler that was there; walk through what is deep with a "
        "list, and leave the limit of recursion, which keeps the stack from overflowing.",
    )


def leaves_the_process(rule_id: str, *, heading: str = "") -> Rule:
    """Return the rule about what serving changes for others that changes no answer.

    Args:
        rule_id: its number in the family.
        heading: what reports put the rule under, where no section does.

    """
    return Rule(
        id=rule_id,
        title="Serving leaves the process as it is",
        statement=(
            "After a request the numbers of threads and the other settings of torch, warning "
            "filters, logging, signal handlers, hooks and limits of Python, the working folder and "
            "the event loop's own settings are what they were before it." + IN_FRONT_END
        ),
        section=heading,
        sources=(
            Source(
                "vllm/entrypoints/launchers/api_server/entry.py:run_server",
                "one process, with one event loop, serves all clients, and its log is the "
                "operator's",
            ),
        ),
        hint="Do it when an instance is made, and say so; or put it back before anything is "
        "awaited, as contextlib's managers do.",
    )


def same_in_servers(rule_id: str, *, heading: str = "") -> Rule:
    """Return the rule about the configurations of servers that a run names.

    Args:
        rule_id: its number in the family.
        heading: what reports put the rule under, where no section does.

    """
    return Rule(
        id=rule_id,
        title="The same answers under every configuration of the server",
        statement=(
            "Under each configuration that is asked for (several API servers, data-parallel "
            "engines, ...) the rules of a server hold as on one with a single front end, where "
            "vLLM itself starts without the plugin."
        ),
        section=heading,
        sources=(
            changes(
                Source(
                    "vllm/entrypoints/cli/serve.py:run_multi_api_server",
                    "each API server is a process and makes an instance; the system decides "
                    "which of them has a client's connection",
                )
            ),
        ),
        hint="Look for what is kept from one request to the next: another front end has its own.",
        evidence=(Evidence.OFFLINE,),
    )
