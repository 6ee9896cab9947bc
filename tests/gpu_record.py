# SPDX-License-Identifier: Apache-2.0
"""What was seen on a GPU: kept as data, drawn as a page.

    python tests/gpu_record.py FOLDER ...

Collects the certificates and the judgements of the host that the GPU lane left in folders, the last
of each kind, into ``reports/gpu.json``, and draws ``docs/gpu-results.md``.
What earlier runs showed of plugins that are still the same is kept.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from conformance.plugin.files import digest_of
from conformance.verdict import Verdict

ROOT = Path(__file__).parents[1]
DATA = ROOT / "reports" / "gpu.json"
PAGE = ROOT / "docs" / "gpu-results.md"

HEAD = """\
# Results on a GPU

Drawn from `reports/gpu.json`, which `python tests/gpu_record.py FOLDER ...` makes of what
[the GPU lane](gpu.md) wrote.
"""


def collect(folders: list[Path], earlier: dict[str, Any]) -> dict[str, Any]:
    """Return what runs on a GPU showed of the reference plugins as they are now.

    Of a plugin's runs, eager or with CUDA graphs, it is the last that was not interrupted; of the
    host's, what is in the last folder that has any.  ``earlier`` is what was collected before.
    """
    runs: dict[tuple[object, ...], dict[str, Any]] = {
        (run["plugin"], run["cuda_graphs"]): run
        for run in earlier["runs"]
        if digest_of(str(ROOT / run["source"])) == run["digest"]
    }
    host: list[dict[str, Any]] = earlier["host"]
    for folder in folders:
        for path in sorted(folder.rglob("certificate.json")):
            found = _run(json.loads(path.read_text("utf-8")))
            if found is not None:
                key = (found["plugin"], found["cuda_graphs"])
                runs[key] = max(found, runs.get(key, found), key=lambda each: str(each["finished"]))
        host = [_host(path) for path in folder.rglob("host.json")] or host
    return {
        "runs": sorted(runs.values(), key=lambda each: (each["cuda_graphs"], each["plugin"])),
        "host": host,
    }


def _run(certificate: dict[str, Any]) -> dict[str, Any] | None:
    environment, run = certificate["environment"], certificate["run"]
    if certificate["interrupted"] or environment.get("device") != "cuda":
        return None
    source = certificate["plugin"]["source"]
    mine = source.startswith("reference_plugins/")
    if not mine or digest_of(str(ROOT / source)) != certificate["plugin"]["digest"]:
        return None
    rules = certificate["rules"]
    why: dict[str, list[str]] = {}
    for rule in rules:
        if rule["verdict"] == Verdict.NOT_VERIFIED:
            why.setdefault(rule["message"], []).append(rule["id"])
    return {
        "plugin": certificate["plugin"]["target"].removeprefix("reference_plugins/"),
        "source": source,
        "digest": certificate["plugin"]["digest"],
        "generation": certificate["plugin"]["generation"],
        "evidence": ", ".join(run["evidence"]),
        "budget": run["budget"],
        "cuda_graphs": environment.get("host_cuda_graphs") == "on",
        "runner": environment.get("runner"),
        "verdict": certificate["verdict"],
        "counts": dict(sorted(Counter(rule["verdict"] for rule in rules).items())),
        "not_verified": why,
        "versions": {name: environment[name] for name in ("vllm", "torch", "python")},
        "seconds": run["seconds"],
        "finished": run["finished"],
    }


def _host(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text("utf-8"))
    counts = Counter(rule["verdict"] for rule in document["rules"])
    return {"verdict": document["verdict"], "counts": dict(sorted(counts.items()))}


def page(data: dict[str, Any]) -> str:
    """Return the page that shows what was seen, as Markdown."""
    lines = [HEAD, "## Certificates", ""]
    lines += ["| plugin | verdict | rules | evidence | CUDA graphs | done after (s) | day |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for run in data["runs"]:
        counts = ", ".join(f"{count} {name}" for name, count in run["counts"].items())
        graphs = "yes" if run["cuda_graphs"] else "no"
        what = (_name(run), run["verdict"], counts, run["evidence"], graphs)
        lines += [f"| {' | '.join(what)} | {run['seconds']:.0f} | {run['finished'][:10]} |"]
    said = {
        f"- {_name(run)}: {', '.join(sorted(rules))}: {why}"
        for run in data["runs"]
        for why, rules in run["not_verified"].items()
    }
    if said:
        lines += ["", "Not verified:", "", *sorted(said)]
    versions = sorted({tuple(run["versions"].items()) for run in data["runs"]})
    lines += ["", "Versions: " + "; ".join(", ".join(map(" ".join, each)) for each in versions)]
    lines += ["", "## vLLM as a host of batch logits processors", ""]
    for host in data["host"]:
        counts = ", ".join(f"{count} {name}" for name, count in host["counts"].items())
        lines += [f"- {host['verdict']}: {counts}"]
    return "\n".join(lines).rstrip() + "\n"


def _name(run: dict[str, Any]) -> str:
    """Return a plugin's class, and its generation."""
    return f"`{run['plugin'].partition(':')[2].partition('@')[0]}` ({run['generation']})"


def main(folders: list[str]) -> None:
    """Collect, keep and draw."""
    earlier = json.loads(DATA.read_text("utf-8"))
    data = collect([Path(folder) for folder in folders], earlier)
    DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(data), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
