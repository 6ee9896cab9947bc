# SPDX-License-Identifier: Apache-2.0
"""Checks of prompts and their parameters."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams

from conformance.comparison import first_line, shortened
from conformance.findings import Finding, failed, passed, waiting
from conformance.io_processor.answers import Kind, of_error
from conformance.io_processor.host import DATA, Documented, request_of

if TYPE_CHECKING:
    from conformance.io_processor.bench import Bench
    from conformance.io_processor.trial import Trial
    from conformance.io_processor.watched import Watched

#: What a caller may set, and must find again.
ASKED: tuple[dict[str, Any], ...] = ({"use_activation": False}, {"dimensions": 8})


def asks(plugin: Watched, bench: Bench) -> Any:  # noqa: ANN401 - a method of the plugin
    """Return the method that gives the parameters of a request."""
    name = "merge_pooling_params" if bench.generation == DATA else "validate_or_generate_params"
    return getattr(plugin, name)


def prompts(trial: Trial) -> Finding:
    """vLLM takes every prompt."""
    if why := prompts_trouble(trial.bench):
        return failed(why)
    count = len(trial.bench.stock.valid)
    return passed(count, count)


def prompts_trouble(bench: Bench) -> str | None:
    """Say which prompts vLLM does not take, or return None."""
    for data in bench.stock.valid[: bench.stock.given]:
        plugin = bench.make()
        try:
            made = parsed(plugin, bench, data)
            given = plugin.pre_process(prompt=made, request_id="id-0")
        except Exception:  # noqa: BLE001, S112 - another rule is about that
            continue
        try:
            Documented(bench.generation, bench.around)._render(given)  # noqa: SLF001 - a friend
        except Exception as error:  # noqa: BLE001 - vLLM refuses in many ways
            why = f"{type(error).__name__}: {first_line(str(error))}"
            what = shortened(given) if isinstance(given, list | dict | str) else repr(given)
            return f"vLLM does not take the prompts {what} of {shortened(data)}: {why}"
    return None


def parsed(plugin: Watched, bench: Bench, data: Any) -> Any:  # noqa: ANN401 - JSON values
    """Return data as the plugin parses them."""
    data = copy.deepcopy(data)
    if bench.generation == DATA:
        return plugin.parse_data(data)
    return plugin.parse_request(request_of(data))


def returned(trial: Trial) -> Finding:
    """Parameters are returned, with some given and with none."""
    if why := params_trouble(trial.bench):
        return failed(why)
    return passed(2, 2)


def params_trouble(bench: Bench) -> str | None:
    """Say what is returned that is no parameters, or return None."""
    from vllm.tasks import POOLING_TASKS

    good = PoolingParams if bench.generation == DATA else PoolingParams | SamplingParams
    for arguments in ((), (None,), (PoolingParams(),)):
        method = asks(bench.make(), bench)
        given = "PoolingParams()" if arguments and arguments[0] else "none"
        called = f"{_name(bench)}, given {given},"
        try:
            got = method(*arguments)
        except Exception as error:  # noqa: BLE001 - any is wrong here
            return f"{called} raised {type(error).__name__}: {first_line(str(error))}"
        if not isinstance(got, good):
            return f"{called} returned {type(got).__name__}"
        task = getattr(got, "task", None)
        if task is not None and task not in POOLING_TASKS:
            return f"{called} returned the task {task!r}, which vLLM does not know"
    return None


def kept(trial: Trial) -> Finding:
    """What the caller set is there again, or refused."""
    bench = trial.bench
    for keywords in ASKED:
        method = asks(bench.make(), bench)
        try:
            got = method(PoolingParams(**keywords))
        except Exception as error:  # noqa: BLE001 - a refusal is an answer
            answer = of_error(error, _name(bench))
            if answer.kind is Kind.REFUSED:
                continue
            return failed(f"{_name(bench)} with {_shown(keywords)} {answer.describe()}")
        if got is None:
            return waiting("IO-14")
        for key, value in keywords.items():
            if getattr(got, key, None) != value:
                return failed(
                    f"{_name(bench)} was given {_shown(keywords)} and returned "
                    f"{key}={getattr(got, key, None)!r}"
                )
    return passed(len(ASKED), len(ASKED))


def _shown(keywords: dict[str, Any]) -> str:
    return f"PoolingParams({', '.join(f'{key}={value!r}' for key, value in keywords.items())})"


def fresh(trial: Trial) -> Finding:
    """No two requests get the same object, from one instance or from two."""
    bench = trial.bench
    plugin = bench.make()
    made = [asks(each, bench)() for each in (plugin, plugin, bench.make())]
    made += [asks(plugin, bench)(PoolingParams()) for _ in range(2)]
    made = [params for params in made if params is not None]  # another rule is about those
    if len({id(params) for params in made}) < len(made):
        return failed(f"{_name(bench)} returned the same object for two requests")
    return passed(len(made), len(made))


def _name(bench: Bench) -> str:
    return "merge_pooling_params" if bench.generation == DATA else "validate_or_generate_params"
