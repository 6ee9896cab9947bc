# SPDX-License-Identifier: Apache-2.0
"""Installed-looking distributions that nobody installs.

vLLM finds some plugins only through the entry points of an installed distribution.
A ``.dist-info`` folder on ``PYTHONPATH`` is such a distribution to every process that inherits the
path, and to no other: an entry point that were really installed would be loaded into every engine
of the environment.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path

from conformance.engine.model_runner import Runner
from conformance.plugin.target import GENERAL_PLUGINS, LOGITS_PROCESSORS

#: The name of a plugin under trial where vLLM finds it by an entry point.
TRIED = "conformance-plugin"

#: What has vLLM load the runtime of classifier hooks.
HOOK_RUNTIME = {GENERAL_PLUGINS: {"classifier_hook": "reference_plugins.classifier_hook:install"}}

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def synthetic_distribution(
    directory: Path, *, name: str, group: str, entries: Mapping[str, str]
) -> Path:
    """Write the metadata of a distribution *name* whose entry points in *group* are *entries*.

    *entries* maps the entry point's name to its object reference, ``"package.module:attribute"``.
    Several distributions may share *directory*; writing one of the same name again replaces it.

    Returns *directory*, the folder to put on ``PYTHONPATH``.

    Raises:
        ValueError: if a name, the group or a reference cannot be written as an entry point.
    """
    if not entries:
        raise ValueError(f"a distribution with entry points in {group!r} needs at least one entry")
    for text in (group, *entries, *entries.values()):
        # The file is INI-like: these would be read back as something else, or not at all.
        if not text or text != text.strip() or text[0] in "[#;" or set(text) & set("=\r\n"):
            raise ValueError(f"{text!r} cannot stand in an entry point of group {group!r}")
    if set(group) & set("[]"):
        raise ValueError(f"{group!r} cannot be the name of an entry point group")
    lines = [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    return write_distribution(
        directory, name=name, version="0", files={"entry_points.txt": "\n".join(lines) + "\n"}
    )


def write_distribution(
    directory: Path, *, name: str, version: str, files: Mapping[str, str] | None = None
) -> Path:
    """Write ``NAME-VERSION.dist-info`` with METADATA, RECORD and *files* into *directory*.

    Returns *directory*.

    Raises:
        ValueError: if *name* is no valid distribution name.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no valid distribution name")
    stem = f"{re.sub(r'[-_.]+', '_', name).lower()}-{version}.dist-info"
    folder = directory / stem
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        **(files or {}),
    }
    record = []
    for filename, text in contents.items():
        data = text.encode()
        (folder / filename).write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{stem}/{filename},sha256={digest},{len(data)}")
    # A blank line in RECORD breaks importlib.metadata, so each line is written whole.
    record.append(f"{stem}/RECORD,,")
    (folder / "RECORD").write_text("\n".join(record) + "\n", encoding="utf-8")
    return directory


def unlisted(directory: Path, cls: type) -> list[Path]:
    """Write the metadata of installed distributions again, without a class among the entry points.

    vLLM loads every installed logits processor into every engine. One that is also passed by name
    would be there twice, and nothing would be without it. Of two distributions of one name the
    first on the path counts, so these have to come before the installed ones.

    Returns:
        *directory*, to put first on ``PYTHONPATH``; nothing where no distribution lists the class.

    """
    written = False
    for distribution in importlib.metadata.distributions():
        others = [entry for entry in distribution.entry_points if not _names(entry, cls)]
        if len(others) == len(distribution.entry_points):
            continue
        groups: dict[str, list[str]] = {}
        for entry in others:
            groups.setdefault(entry.group, []).append(f"{entry.name} = {entry.value}\n")
        lines = [f"[{group}]\n{''.join(entries)}" for group, entries in groups.items()]
        files = {"entry_points.txt": "\n".join(lines)}
        if metadata := distribution.read_text("METADATA"):
            files["METADATA"] = metadata
        write_distribution(
            directory, name=distribution.name, version=distribution.version, files=files
        )
        written = True
    return [directory] if written else []


def _names(entry: importlib.metadata.EntryPoint, cls: type) -> bool:
    if entry.group != LOGITS_PROCESSORS:
        return False
    with contextlib.suppress(Exception):  # what does not load is not the class
        return entry.load() is cls
    return False


def refused(runner: Runner) -> str | None:
    """Say which installed logits processor keeps a model runner from starting, if one does.

    Each runner loads every class of the group, and is ended by one of the other's interface; what
    the V1 runner says of it then (``__init__() takes 3 positional arguments but 4 were given``)
    tells nobody what is wrong.
    """
    names = {"v1": "the V1 model runner", "v2": "Model Runner V2"}
    if runner == "v1":
        from vllm.v1.sample.logits_processor import LogitsProcessor as Base
    else:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as Base
    for entry in importlib.metadata.entry_points(group=LOGITS_PROCESSORS):
        with contextlib.suppress(Exception):  # what does not load, vLLM says itself
            found = entry.load()
            if isinstance(found, type) and not issubclass(found, Base):
                owner = entry.dist.name if entry.dist else entry.name
                return (
                    f"{names[runner]} does not start in this environment: the installed "
                    f"{LOGITS_PROCESSORS} entry point {entry.name} ({entry.value}) has the other "
                    f"model runner's interface; uninstall {owner}, or use an environment without it"
                )
    return None
