# SPDX-License-Identifier: Apache-2.0
"""Configurations of an engine, as data: what each is about, and to which plugins it can matter.

Imports neither vLLM nor torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from conformance.rules import nearest
from conformance.settings import Encoding, UsageError, choose

LOGITS = frozenset({"logits/batch", "logits/slot"})

#: Plugins that the front end runs: servers are what can matter to them.
_SERVED = LOGITS | {"io/data", "hook/rfc"}

#: Of a model that takes items, the front end runs a part and every rank another one.
_ITEMS = frozenset({"mm/processor"})


#: The folder of a run, in the arguments of servers, and where encoders leave there what they make.
FOLDER = "{folder}"
ENCODED = f"{FOLDER}/encoded"


def _encoded(role: str) -> str:
    """Return the argument with which encoders write what they make of items, or read it, or both.

    It lies in files, since of vLLM's connectors that one alone needs no network card.
    """
    connector = {
        "ec_connector": "ECExampleConnector",
        "ec_role": role,
        "ec_connector_extra_config": {"shared_storage_path": ENCODED},
    }
    return f"--ec-transfer-config={json.dumps(connector)}"


@attrs.frozen(kw_only=True)
class Configuration:
    """One way in which vLLM runs a plugin."""

    name: str
    about: str  #: what of a plugin can go wrong in it, in one sentence
    arguments: Mapping[str, Any] = attrs.field(factory=dict)  #: of ``vllm.LLM``
    #: Of ``vllm serve``; None where no server runs, but an engine of ``vllm.LLM``.
    server: tuple[str, ...] | None = None
    #: Of a server whose model takes items, where for others an engine of ``vllm.LLM`` runs.
    flags: tuple[str, ...] = ()
    #: Of a second server, which is asked first and encodes the items for the one that answers.
    encoder: tuple[str, ...] = ()
    front_ends: int = 1  #: processes of a server that take requests; it shows nothing with fewer
    clients: int = 0  #: of a server at the same time, where it is about how many they are
    generations: frozenset[str] = LOGITS  #: to whose plugins it can matter
    ranks: int = 1  #: worker processes; an engine of one runs in the process of its executor
    own_process: bool = False  #: whether the engine core is in another process than the front end
    #: Random requests with seeds are left out: on a CPU, vLLM cannot go on with the generator of
    #: a request whose row it sampled and threw away (``CPU Generator does not use offset``).
    greedy_only: bool = False
    preempts: bool = False  #: whether it shows nothing unless an opted-in request is preempted
    prioritised: bool = False  #: whether requests that come later are more urgent
    fills_context: bool = False  #: whether answers go on to the last position of the model
    structured: bool = False  #: whether requests with a grammar stand beside those of the workload
    embedded: bool = False  #: whether opted-out requests beside it send embeddings for a prompt
    adapted: bool = False  #: whether requests beside it have the same prompts, and an adapter
    #: Whether the engine starts with other weights, serves with them, and is then given its own.
    reloads: bool = False
    #: What is made of the model, by the argument that names its folder: a function of `variants`.
    made: Mapping[str, str] = attrs.field(factory=dict)
    pauses: bool = False  #: whether the engine sleeps, and is woken, between two workloads
    #: What must have come of the arguments when vLLM has made its configuration of them:
    #: dotted names within ``VllmConfig``. Platforms switch silently off what they cannot do.
    becomes: Mapping[str, Any] = attrs.field(factory=dict)
    needs_module: str | None = None  #: a distribution that vLLM does without
    #: Whether a plugin may declare that it does not support it.
    refusable: bool = True

    def served(self, folder: Path) -> tuple[str, ...]:
        """Return the arguments of ``vllm serve`` in a run with a folder of its own."""
        return _within(self.flags if self.server is None else self.server, folder)

    def encoding(self, folder: Path) -> Encoding | None:
        """Return how the server that encodes runs, if there is one."""
        where = Path(ENCODED.replace(FOLDER, str(folder)))
        return Encoding(_within(self.encoder, folder), where) if self.encoder else None


def _within(arguments: Iterable[str], folder: Path) -> tuple[str, ...]:
    return tuple(each.replace(FOLDER, str(folder)) for each in arguments)


#: What all others are compared with: one process, no chunks, no cache, room for every request.
PLAIN = Configuration(
    name="plain",
    about="one process, whole prompts, no cache: what every other one is compared with",
    refusable=False,
)

_SMALL_STEPS = {"max_num_batched_tokens": 8, "max_num_seqs": 4, "enable_chunked_prefill": True}

TABLE: tuple[Configuration, ...] = (
    PLAIN,
    Configuration(
        name="own-process",
        about="state that the front end keeps is not there in the process of the engine",
        own_process=True,
        refusable=False,
    ),
    Configuration(
        name="tensor-parallel-2",
        about="each of two ranks has an instance, and all must do the same",
        arguments={"tensor_parallel_size": 2},
        flags=("--tensor-parallel-size=2", "--distributed-executor-backend=mp"),
        generations=LOGITS | _ITEMS,
        ranks=2,
    ),
    Configuration(
        name="pipeline-parallel-2",
        about="only the last of two ranks samples, and it is not rank 0",
        arguments={"pipeline_parallel_size": 2},
        ranks=2,
    ),
    Configuration(
        name="chunked-prefill",
        about="rows of prompts that are not read to their end are sampled and thrown away",
        arguments=_SMALL_STEPS,
        greedy_only=True,
        refusable=False,
    ),
    Configuration(
        name="prefix-caching",
        about="of a prompt that was read before only the last tokens are computed",
        arguments={**_SMALL_STEPS, "enable_prefix_caching": True},
        flags=("--enable-prefix-caching", "--block-size=32"),
        generations=LOGITS | _ITEMS,
        greedy_only=True,
        refusable=False,
    ),
    Configuration(
        name="preemption",
        about="requests lose their rows for want of cache, and come back with their outputs",
        arguments={"num_gpu_blocks_override": 6},
        flags=(
            "--max-num-seqs=64",
            "--max-num-batched-tokens=256",
            "--max-model-len=512",
            "--block-size=32",
            "--num-gpu-blocks-override=18",
        ),
        generations=LOGITS | _ITEMS,
        preempts=True,
        refusable=False,
    ),
    Configuration(
        name="priority-scheduling",
        about="requests that come later push those that run out of the batch",
        arguments={"scheduling_policy": "priority", "num_gpu_blocks_override": 6},
        preempts=True,
        prioritised=True,
        refusable=False,
    ),
    Configuration(
        name="async-scheduling",
        about="a step is prepared before the tokens of the last one are known",
        arguments={"async_scheduling": True},
        becomes={"scheduler_config.async_scheduling": True},
        refusable=False,
    ),
    Configuration(
        name="n-gram-drafts",
        about="a request has a row for each draft token, and drafts may be refused",
        arguments={
            "speculative_config": {
                "method": "ngram",
                "num_speculative_tokens": 3,
                "prompt_lookup_max": 3,
            }
        },
    ),
    Configuration(
        name="draft-model",
        about="another model drafts, and a request has a row for each draft token",
        arguments={"speculative_config": {"method": "draft_model", "num_speculative_tokens": 3}},
        made={"speculative_config.model": "other_weights"},
    ),
    Configuration(
        name="expert-parallel-2",
        about="the experts of a model are on two ranks, and each rank has an instance",
        arguments={"tensor_parallel_size": 2, "enable_expert_parallel": True},
        made={"model": "experts"},
        ranks=2,
    ),
    Configuration(
        name="lora-adapters",
        about="requests with an adapter have the same prompts, and the model says something else",
        # A free slot too: on a CPU, requests without an adapter are given what the last slot holds.
        arguments={"enable_lora": True, "max_loras": 2},
        adapted=True,
    ),
    Configuration(
        name="weights-reloaded",
        about="the engine has served with other weights, which say something else",
        made={"model": "other_weights"},
        reloads=True,
    ),
    Configuration(
        name="structured-outputs",
        about="grammars mask the rows of other requests of the batch",
        structured=True,
        refusable=False,
    ),
    Configuration(
        name="context-limit",
        about="answers go on until no position of the model is left",
        fills_context=True,
        refusable=False,
    ),
    Configuration(
        name="prompt-embeddings",
        about="requests beside it have a prompt without token ids",
        arguments={"enable_prompt_embeds": True},
        embedded=True,
    ),
    Configuration(
        name="sleep-mode",
        about="the engine gives its memory back and is woken again",
        arguments={"enable_sleep_mode": True},
        pauses=True,
    ),
    Configuration(
        name="server",
        about="clients' requests come over HTTP, and the engine is a process that vLLM starts",
        server=(),
        generations=_SERVED | _ITEMS,
        refusable=False,
    ),
    Configuration(
        name="api-servers-2",
        about="two front ends, each with a class of its own, send requests to one engine",
        server=("--api-server-count=2",),
        front_ends=2,
        generations=_SERVED | _ITEMS,
        refusable=False,
    ),
    Configuration(
        name="data-parallel-2",
        about="two engines share the requests, and neither sees those of the other",
        server=("--data-parallel-size=2",),
        generations=_SERVED | _ITEMS,
    ),
    Configuration(
        name="data-parallel-external",
        about="a load balancer shares the requests, and each engine has a front end",
        server=("--data-parallel-size=2", "--data-parallel-rank=0"),
    ),
    Configuration(
        name="stream-interval",
        about="clients hear of five tokens at a time, and a step still has one",
        server=("--stream-interval=5",),
        generations=LOGITS | {"hook/rfc"},
        refusable=False,
    ),
    Configuration(
        name="renderer-workers-2",
        about="two threads of the front end work on prompts and on what stands beside them",
        server=("--renderer-num-workers=2",),
        generations=frozenset({"io/data"}),
        refusable=False,
    ),
    Configuration(
        name="clients-200",
        about="two hundred clients ask at the same time, and each has an answer of its own",
        server=(),
        clients=200,
        generations=_SERVED,
        refusable=False,
    ),
    Configuration(
        name="item-cache-off",
        about="no item is kept in the front end: each is processed as often as it comes",
        server=("--mm-processor-cache-gb=0",),
        generations=_ITEMS,
        refusable=False,
    ),
    Configuration(
        name="encoder-cache-shared",
        about="what is made of an item is read from where another encoder has written it",
        server=(_encoded("ec_both"),),
        generations=_ITEMS,
    ),
    Configuration(
        name="encoder-disaggregated",
        about="one server encodes the items, and another one answers with what it has written",
        server=(_encoded("ec_consumer"),),
        encoder=(_encoded("ec_producer"),),
        generations=_ITEMS,
    ),
    Configuration(
        name="ray",
        about="the ranks are actors of a Ray cluster",
        arguments={"distributed_executor_backend": "ray"},
        ranks=2,
        needs_module="ray",
    ),
)


def unsupported(section: Mapping[str, Any], generation: str) -> tuple[str, ...]:
    """Return what a section of a profile says that its plugin does not support.

    Raises:
        UsageError: it names what it may not.

    """
    names = tuple(section.get("unsupported_configurations", ()))
    may = [each.name for each in TABLE if each.refusable and generation in each.generations]
    for name in names:
        if name not in may:
            raise UsageError(
                f"profile: unsupported_configurations may have {', '.join(may)}, not {name!r}."
                + nearest(str(name), may)
            )
    return names


def named(name: str) -> Configuration:
    """Return the configuration with this name, or raise ``KeyError``."""
    return {each.name: each for each in TABLE}[name]


def chosen(names: Iterable[str], generation: str) -> list[Configuration]:
    """Return those of the named configurations that can matter to plugins of a generation."""
    return [each for each in map(named, names) if generation in each.generations]


def parse(text: str | None) -> tuple[str, ...]:
    """Parse ``--configuration``; nothing is chosen where it is not given.

    Raises:
        UsageError: a word is no configuration.

    """
    return () if text is None else choose("--configuration", text, [each.name for each in TABLE])
