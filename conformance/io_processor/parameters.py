# SPDX-License-Identifier: Apache-2.0
"""Checks of the parameters of prompts."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Collection
from typing import Any

from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams

from conformance.checking import checks
from conformance.engine.pooling_models import TASKS
from conformance.findings import Finding, failed, passed, waiting
from conformance.io_processor import DATA
from conformance.io_processor.answers import Kind, of_error
from conformance.io_processor.bench import Bench
from conformance.io_processor.trial import Trial
from conformance.io_processor.watched import Watched
from conformance.watching.comparison import shortened
from conformance.watching.raised import said

#: What a caller may set, and must find again as it is.
ASKED: tuple[dict[str, Any], ...] = (
    {"use_activation": False},
    {"use_activation": True},
    {"dimensions": 8},
)

#: What a plugin may have its own values of, and else must not lose.
OWN: tuple[dict[str, Any], ...] = (
    {"task": "token_embed"},
    {"step_tag_id": 3},
    {"returned_token_ids": [1]},
    {"requires_token_ids": True},
    {"skip_reading_prefix_cache": True},
    {"extra_kwargs": {"key": "value"}},
)


#: Requests of several prompts that are asked offline.
SEVERAL = 2


def asks(plugin: Watched, bench: Bench) -> Any:  # noqa: ANN401 - a method of the plugin
    """Return the method that gives the parameters of a request.

    Where it raises by itself, it is called as vLLM calls it: behind what was done of a request, in
    the same task, in which a plugin may have left what they are made of.
    """
    bare = getattr(plugin, bench.asked)
    if bench.generation != DATA or not bench.valid:
        return bare

    def method(*arguments: object) -> Any:  # noqa: ANN401 - what plugins return
        given = copy.deepcopy(arguments)
        try:
            return bare(*arguments)
        except Exception as error:  # noqa: BLE001 - raised below, unless it needed a request
            try:
                return asyncio.run(_of_request(plugin, bench, given))
            except Exception:  # noqa: BLE001 - what it raised by itself is told
                raise error from None

    return method


async def _of_request(plugin: Watched, bench: Bench, arguments: tuple[object, ...]) -> object:
    """Ask for the parameters of a request whose prompts are made."""
    prompt = plugin.parse_data(copy.deepcopy(bench.valid[0]))
    plugin.pre_process(prompt=prompt, request_id="id-0")
    return getattr(plugin, bench.asked)(*arguments)


@checks("IO-14")
def returned(trial: Trial) -> Finding:
    """Parameters are returned, with some given and with none."""
    trial.prepare()
    if why := params_trouble(trial.bench):
        return failed(why)
    several = trial.bench.stock.several()[:SEVERAL]
    for index in several if trial.bench.generation == DATA else ():
        data = trial.bench.stock.valid[index]
        if why := _each_trouble(trial.bench, data):
            return failed(why, case={"data": data})
    return passed(2 + len(several))


def _each_trouble(bench: Bench, data: object) -> str | None:
    """Say what is returned for some prompts of a request alone, or return None.

    Offline, parameters are asked for once for each of them; online, once for all.
    """
    plugin = bench.make()
    answer = bench.ask_offline(plugin, data)
    where = f"{bench.asked}, asked offline for each prompt of {shortened(data)},"
    if answer.call == bench.asked:
        return f"{where} {answer.describe()} for number {len(plugin.params)}"
    for number, each in enumerate(plugin.params):
        if each != plugin.params[0]:
            return f"{where} returned {each} for number {number}, and {plugin.params[0]} before"
    return None


def params_trouble(bench: Bench) -> str | None:
    """Say what is returned that is no parameters, or return None."""
    from vllm.tasks import POOLING_TASKS

    good = PoolingParams if bench.generation == DATA else PoolingParams | SamplingParams
    tasks: list[str | None] = []
    for arguments in ((), (None,), (PoolingParams(),)):
        given, task = "PoolingParams()" if arguments and arguments[0] else "none", None
        method = asks(bench.make(), bench)
        for time in ("", ", the second time,"):
            called = f"{bench.asked}, given {given},{time}"
            try:
                got = method(*copy.deepcopy(arguments))
            except Exception as error:  # noqa: BLE001 - any is wrong here
                return f"{called} raised {said(error, bench.path)}"
            if not isinstance(got, good):
                return f"{called} returned {type(got).__name__}"
            task = getattr(got, "task", None)
            if task is not None and task not in POOLING_TASKS:
                return f"{called} returned the task {task!r}, which vLLM does not know"
        tasks.append(task)
    if tasks[-1] is None and tasks[0] is not None:
        return None  # the caller may name it: another rule
    if (tasks[0] or "plugin") != (tasks[-1] or "plugin"):
        return _apart(bench, tasks[0], tasks[-1])
    return None


@checks("IO-43")
def names_task(trial: Trial) -> Finding:
    """The task that is set online is set offline, too, where the caller has named none."""
    bench = trial.bench
    if params_trouble(bench):
        return waiting("IO-14")
    if (task := bench.task_to_name) is not None:
        return failed(f"{_apart(bench, task, None)}: there the caller must name the task")
    return passed(2)


def _apart(bench: Bench, online: str | None, offline: str | None) -> str:
    return (
        f"{bench.asked}, given PoolingParams() as offline, {_asks_for(offline)}; given none, as "
        f"online, it {_asks_for(online)}"
    )


def _asks_for(task: str | None) -> str:
    if task is None:
        return "leaves params.task as it is, and vLLM makes it 'plugin'"
    return f"asks for the task {task!r}"


def no_pooler(bench: Bench, supported: Collection[str] = ()) -> str | None:
    """Say that a model has no pooler for the task of the plugin, which is not the plugin's fault.

    Args:
        bench: the plugin, whose parameters are returned as they should be.
        supported: the tasks of the model; those of the harness's own models are known.

    """
    own = bench.around.own
    supported = supported or TASKS.get(own or "", ())
    task = getattr(asks(bench.make(), bench)(), "task", None)
    if not supported or (task or "plugin") in supported:
        return None
    return (
        f"{bench.asked} {_asks_for(task)}, and the model {own or 'of the profile'} has poolers "
        f"for {', '.join(sorted(supported))} alone: set params.task to what the plugin needs, or "
        'name its model in the profile, [io-processor] model = "FOLDER"'
    )


@checks("IO-15")
def kept(trial: Trial) -> Finding:
    """What the caller set is there again, or refused."""
    bench = trial.bench
    for keywords in (*ASKED, *OWN):
        ((key, value),) = keywords.items()
        if key not in PoolingParams.__struct_fields__:
            continue  # of other releases
        method = asks(bench.make(), bench)
        try:
            got = method(PoolingParams(**copy.deepcopy(keywords)))
        except Exception as error:  # noqa: BLE001 - a refusal is an answer
            answer = of_error(error, bench.asked, path=bench.path)
            if answer.kind is Kind.REFUSED:
                continue
            return failed(
                f"{bench.asked} with {_shown(keywords)} {answer.describe()}",
                case={"asked": keywords},
            )
        if got is None:
            return waiting("IO-14")
        found = getattr(got, key, None)
        if found != value and (keywords in ASKED or not found):
            return failed(
                f"{bench.asked} was given {_shown(keywords)} and returned {key}={found!r}",
                case={"asked": keywords},
            )
    return passed(len(ASKED) + len(OWN))


def _shown(keywords: dict[str, Any]) -> str:
    return f"PoolingParams({', '.join(f'{key}={value!r}' for key, value in keywords.items())})"


@checks("IO-16")
def fresh(trial: Trial) -> Finding:
    """No two requests get the same object, from one instance or from two."""
    bench = trial.bench
    plugin = bench.make()
    try:
        made = [asks(each, bench)() for each in (plugin, plugin, bench.make())]
        made += [asks(plugin, bench)(PoolingParams()) for _ in range(2)]
    except Exception:  # noqa: BLE001 - any is wrong there
        return waiting("IO-14")
    made = [params for params in made if params is not None]  # another rule is about those
    if len({id(params) for params in made}) < len(made):
        return failed(f"{bench.asked} returned the same object for two requests")
    return passed(len(made))
