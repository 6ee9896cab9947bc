# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance host``: judge the installed vLLM itself, as the host of logits processors.

Imports neither vLLM nor torch: an engine runs in a worker, and what it sent is judged here.
With ``--interface classifier-hook`` it is the runtime of classifier hooks that is judged, and with
``--interface multimodal`` the scheduler of multi-modal requests, each in a worker.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
from rich.console import Console
from rich.text import Text

from conformance import RULE_SET, __version__
from conformance.classifier_hook import host_rules as hooks
from conformance.commands import options
from conformance.commands.console import make_console, progress
from conformance.hosts import Host, Judged, asked
from conformance.logits_batch.host_check import results
from conformance.logits_batch.host_rules import RULES
from conformance.multimodal.host import rules as items
from conformance.reporting.terminal import CONCLUSIONS, STYLES, open_table
from conformance.settings import DEFAULT_SEED, Device, UsageError, require_writable
from conformance.verdict import Conclusion, Verdict, combine, decide, exit_status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.rules import Rule
    from conformance.verdict import RuleResult, RuleVerdict
    from conformance.worker import Zygote

_Observed = TypeVar("_Observed")

FILE_NAME = "host.json"
STREAM_NAME = "stream.jsonl"

LOGITS, HOOKS, ITEMS = "logits-processor", "classifier-hook", "multimodal"

#: Interfaces by the generation whose host is judged.
_INTERFACES = {"logits/batch": LOGITS, "hook/rfc": HOOKS, "mm/processor": ITEMS}

#: Hosts that scenes are played with.
_PLAYED = {HOOKS: hooks.HOST, ITEMS: items.HOST}

#: What is known about the surroundings, the stream, and what ended the engine early, if anything.
Recorded = tuple[dict[str, Any], list[dict[str, Any]], str | None]


@click.command(
    epilog="Exit status: 0 conformant, 1 non-conformant, 2 incomplete (something could not be "
    "shown), 3 the harness itself failed, 4 usage."
)
@click.option(
    "--interface",
    type=click.Choice([LOGITS, HOOKS, ITEMS]),
    default=LOGITS,
    show_default=True,
    help="The interface whose host is judged.",
)
@options.device("Where the engine runs.")
@options.seed("Seed of the workload.")
@click.option("--json", "as_json", is_flag=True, help="Print host.json instead of a table.")
@options.report("reports/local/host", f"Where {FILE_NAME} and the recorded {STREAM_NAME} go.")
@click.option(
    "--stream",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Judge this recorded stream (JSON lines) instead of the installed vLLM.",
)
def host(
    *, interface: str, device: str, seed: int, as_json: bool, report: Path, stream: Path | None
) -> int:
    """Judge the installed vLLM, a fork or a hardware plugin as the host of plugins.

    logits-processor: runs a real engine with two processors that record every call, and judges
    what they were sent: batch updates, lists of output tokens, logits, and the order of the calls.

    classifier-hook: runs the hook runtime on the installed vLLM's AsyncLLM, in virtual time; the
    engine behind it follows scripts.

    multimodal: runs the installed vLLM's scheduler without a model, and judges when it encodes
    items, what it caches of them, and which prefixes it reuses.
    """
    console = make_console()
    started = time.monotonic()
    require_writable(Path.cwd() / report, report)
    if interface != LOGITS:
        if stream is not None:
            raise UsageError("--stream is for logits processors: no other host has one.")
        with progress(console, "importing vLLM and playing scenes"):
            found = _in_worker(_PLAYED[interface].judge)
        document = build_played(_PLAYED[interface], found, seconds=time.monotonic() - started)
        return _finish(console, document, None, report, as_json=as_json)
    if stream is not None:
        recorded: Recorded = ({}, read_stream(stream), None)
    else:
        with progress(console, "importing vLLM and starting an engine"):
            recorded = _in_worker(partial(observe, device=Device(device), seed=seed))
    document = build(
        recorded, seed=seed if stream is None else None, seconds=time.monotonic() - started
    )
    return _finish(
        console, document, recorded[1] if stream is None else None, report, as_json=as_json
    )


def _finish(
    console: Console,
    document: dict[str, Any],
    stream: list[dict[str, Any]] | None,
    report: Path,
    *,
    as_json: bool,
) -> int:
    """Write and show a document, and return the exit status."""
    _write(document, stream, report)
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _show(console, document, report)
    return int(exit_status([Conclusion(document["verdict"])]))


def _in_worker(observing: Callable[[Zygote, Path], _Observed]) -> _Observed:
    """Observe the installed vLLM.

    Raises:
        HarnessError: it could not be observed.

    """
    from conformance.running.runner import HarnessError
    from conformance.running.zygotes import start_zygote
    from conformance.worker import JobDied, JobHung, ZygoteFailed

    with (
        tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder,
        contextlib.closing(start_zygote()) as zygote,
    ):
        try:
            return observing(zygote, Path(folder))
        except (ZygoteFailed, JobDied, JobHung) as error:
            raise HarnessError(f"the engine could not be observed: {error}") from None


def build_played(judged_host: Host, judged: Judged, *, seconds: float) -> dict[str, Any]:
    """Return what was judged of a host by scenes as the document of ``host.json``."""
    context, found = judged
    return _document(
        judged_host.generation,
        judged_host.rules,
        found,
        environment=context,
        run={"seed": None, "seconds": round(seconds, 1), "records": 0},
    )


def observe(
    zygote: Zygote,
    folder: Path,
    *,
    device: Device = Device.AUTO,
    seed: int = DEFAULT_SEED,
    patch: str | None = None,
    python_path: Sequence[str] = (),
) -> Recorded:
    """Record what an engine in a forked process sends its processors.

    The arguments are those of :func:`conformance.hosts.asked`, the device of the engine and the
    seed of the workload.

    Returns:
        What is known about the surroundings, the stream, and what ended the engine, if anything.

    """
    from conformance.engine.models import tiny_llama

    answer: Recorded = asked(
        zygote,
        folder,
        "conformance.logits_batch.host_engine:record",
        {"model": str(tiny_llama()), "device": device, "seed": seed, "patch": patch},
        python_path,
    )
    return answer


def read_stream(path: Path) -> list[dict[str, Any]]:
    """Read a recorded stream.

    Raises:
        UsageError: there is no such file, or a line is no record.

    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UsageError(f"there is no stream {path}.") from None
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or "event" not in record:
            raise UsageError(f"{path}, line {number}: no JSON object with an 'event'.")
        records.append(record)
    return records


def build(recorded: Recorded, *, seed: int | None, seconds: float) -> dict[str, Any]:
    """Judge what was recorded and return it as the document of ``host.json``.

    Raises:
        UsageError: a record lacks a field.

    """
    context, records, failure = recorded
    try:
        found = results(records)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"the stream is damaged: {type(error).__name__}: {error}.") from error
    if failure is not None:
        # What happened until then may break rules, and shows none of them to hold.
        found = [_unproven(result, failure) for result in found]
    return _document(
        "logits/batch",
        RULES,
        found,
        environment=context,
        run={"seed": seed, "seconds": round(seconds, 1), "records": len(records)},
        failure=failure,
    )


def _document(
    generation: str,
    rules: Sequence[Rule],
    found: Sequence[RuleResult],
    *,
    environment: dict[str, Any],
    run: dict[str, Any],
    failure: str | None = None,
) -> dict[str, Any]:
    verdicts = {
        rule.id: combine(rule.id, rule.level, [one for one in found if one.rule == rule.id])
        for rule in rules
    }
    return {
        "schema": 1,
        "verdict": decide(verdicts.values()).value,
        "interface": _INTERFACES[generation],
        "generation": generation,
        "environment": environment,
        "harness": {"version": __version__, "rules": RULE_SET},
        "run": run,
        "failure": failure,
        "rules": [_rule(rule, verdicts[rule.id]) for rule in rules],
    }


def _unproven(result: RuleResult, failure: str) -> RuleResult:
    if result.verdict is not Verdict.PASS:
        return result
    message = f"the engine ended early: {failure}"
    return attrs.evolve(result, verdict=Verdict.NOT_VERIFIED, message=message)


def _rule(rule: Rule, verdict: RuleVerdict) -> dict[str, Any]:
    return {
        "id": rule.id,
        "title": rule.title,
        "level": rule.level.value,
        "section": rule.section,
        "verdict": verdict.verdict.value,
        "examples": verdict.examples,
        "message": verdict.message,
    }


def _write(document: dict[str, Any], stream: list[dict[str, Any]] | None, folder: Path) -> None:
    from conformance.reporting.certificate import write_whole

    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    write_whole(folder / FILE_NAME, text)
    if stream is not None:
        lines = [json.dumps(record, separators=(",", ":")) + "\n" for record in stream]
        write_whole(folder / STREAM_NAME, "".join(lines))


def _show(console: Console, document: dict[str, Any], folder: Path) -> None:
    """Print the verdict, the rules in a table, and where the document is."""
    conclusion = Conclusion(document["verdict"])
    environment = document["environment"]
    name = f"vLLM {environment['vllm']}" if environment else "recorded stream"
    surroundings = ", ".join(str(value) for value in environment.values())
    console.print(
        Text.assemble(
            (name, "bold"),
            "  ",
            (conclusion.value.upper(), CONCLUSIONS[conclusion]),
            f"  {surroundings}",
        )
    )
    table = open_table("rule", "verdict", "tested", "title")
    for rule in document["rules"]:
        verdict = Verdict(rule["verdict"])
        title = Text(rule["title"])
        if rule["message"]:
            title.append("\n" + rule["message"], style=STYLES[verdict])
        table.add_row(
            rule["id"], Text(verdict.value, style=STYLES[verdict]), str(rule["examples"]), title
        )
    console.print(table)
    if document["failure"]:
        console.print(f"the engine ended early: {document['failure']}", markup=False)
    run = document["run"]
    seed = "" if run["seed"] is None else f"seed {run['seed']}, "
    records = f"{run['records']} records, " if run["records"] else ""
    console.print(
        f"{folder / FILE_NAME}, {seed}{records}{run['seconds']} s",
        style="dim",
        markup=False,
        soft_wrap=True,
    )
