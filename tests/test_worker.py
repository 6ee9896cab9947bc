# SPDX-License-Identifier: Apache-2.0
"""Worker processes, and what plugins do to them; without vLLM, which changes nothing here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from user import environment

from conformance.worker import (
    NOT_YET,
    Job,
    JobDied,
    JobHung,
    Zygote,
    ZygoteFailed,
    client,
    first_heard,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 20.0  # seconds in which a process must be gone

# What jobs do: each takes one question and answers it, or does not.
DEEDS = """
import os, signal, subprocess, sys, time

def answers(connection, greeting):
    try:
        while True:
            question = connection.recv()
            print("was asked", question)
            connection.send(f"thinking about {question}")
            connection.send([greeting, question, os.getcwd()])
    except EOFError:
        print("nobody asks any more")

def imported(connection, name):
    connection.recv()
    connection.send([name in sys.modules])

def exits(connection):
    connection.recv()
    os._exit(7)

def leaves_a_child(connection):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    connection.recv()
    connection.send([child.pid])

def makes_files(connection):
    import pathlib, tempfile
    connection.recv()
    file = pathlib.Path(tempfile.mkdtemp(), "file")
    file.write_text("left")
    connection.send([str(file), os.environ["TMPDIR"]])
    connection.recv()

def scatters(connection):
    connection.recv()
    started = [
        subprocess.Popen([sys.executable, "-S", "hides.py"], stdout=subprocess.PIPE)
        for _ in range(20)
    ]
    pids = [int(child.stdout.readline()) for child in started]
    connection.send(" ".join(["child", *map(str, pids)]))
    connection.send(pids)
    connection.recv()

def is_killed(connection):
    connection.recv()
    os.kill(os.getpid(), signal.SIGKILL)

def raises(connection):
    connection.recv()
    raise LookupError("nothing there")

def hangs(connection):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    connection.recv()
    connection.send(f"child {child.pid}")
    while True:
        time.sleep(0.01)

def gets_on(connection):
    connection.recv()
    for _ in range(4):
        connection.send("")
        time.sleep(0.5)
    connection.send(["done"])

def has_calls_return(connection, seconds):
    from conformance.worker.signs import RETURNED
    connection.recv()
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        connection.send(RETURNED)
        time.sleep(0.2)
    time.sleep(600)

def computes(connection):
    connection.recv()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(5)]
    while int(open("/proc/self/schedstat").read().split()[1]) < 1.5e9:
        pass
    for hog in hogs:
        hog.kill()
    connection.send(["done"])

def starts(connection):
    time.sleep(600)


def hangs_in_a_plugin(connection):
    connection.recv()
    connection.send("working")
    while True:
        try:
            time.sleep(600)
        except (Exception, SystemExit):
            print("a plugin's exception")
"""

# It forks again and ends, so that no one knows of its child, which is in a session of its own and
# heeds no SIGTERM.
HIDES = """
import os, signal, time

if os.fork():
    os._exit(0)
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(600)
"""

# A process that starts a zygote and a job, and says who they are.
PARENT = """
import os, select, sys
from pathlib import Path
from conformance.worker import Zygote

folder = Path(sys.argv[1])
zygote = Zygote(preload=["json"], environment=dict(os.environ), log=folder / "zygote.log")
places = {"log": folder / "job.log", "directory": folder, "python_path": [*sys.path, str(folder)]}
job = zygote.fork(sys.argv[2], {}, **places)
pids = [zygote._process.pid, job.pid]
if "unread" in sys.argv:  # that this job has ended
    other = zygote.fork("deeds:exits", {}, **places)
    other._connection.send("whatever")
    other._connection.poll(20)
    select.select([zygote._control], [], [], 20)
for _ in range(2):
    job.ask("whoever", limit=600, progress=lambda s: print(*pids, *s.split()[1:], flush=True))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with the module that jobs run."""
    (tmp_path / "deeds.py").write_text(DEEDS)
    (tmp_path / "hides.py").write_text(HIDES)
    return tmp_path


@pytest.fixture
def zygote(folder: Path) -> Iterator[Zygote]:
    """Start a zygote that has imported next to nothing."""
    with Zygote(preload=["json"], environment=environment(), log=folder / "zygote.log") as process:
        yield process


@pytest.fixture
def fork(zygote: Zygote, folder: Path) -> Callable[..., Job]:
    """Return a function that forks a job by the name of its deed."""

    def fork(deed: str, preload: tuple[str, ...] = (), **arguments: object) -> Job:
        return zygote.fork(
            f"deeds:{deed}",
            arguments,
            preload=preload,
            log=folder / "job.log",
            directory=folder,
            python_path=[*sys.path, str(folder)],
        )

    return fork


def test_a_job_finds_what_was_imported_for_it(fork: Callable[..., Job]) -> None:
    """So do those after it; what cannot be imported stands in the way of nobody."""
    for preload, expected in [((), False), (("poplib", "no_such_module"), True), ((), True)]:
        job = fork("imported", preload, name="poplib")

        assert job.ask("is it?", limit=PATIENCE) == [expected]


def test_a_function_may_name_what_else_is_imported(folder: Path) -> None:
    """Which suites there are is known where vLLM is imported, and nobody waits for it before."""
    (folder / "wants.py").write_text("def more():\n    return ['imaplib']\n")
    variables = environment() | {"PYTHONPATH": str(folder)}
    log = folder / "zygote.log"
    with Zygote(preload=["wants:more"], environment=variables, log=log) as process:
        job = process.fork(
            "deeds:imported",
            {"name": "imaplib"},
            log=folder / "job.log",
            directory=folder,
            python_path=[*sys.path, str(folder)],
        )

        assert job.ask("is it?", limit=PATIENCE) == [True]


def test_a_function_is_called_for_the_first_job_alone(folder: Path) -> None:
    """Whichever job asks for it first: what it does is done for all that follow."""
    counted = folder / "counted"
    (folder / "counts.py").write_text(f"def call():\n    open({str(counted)!r}, 'a').write('.')\n")
    variables = environment() | {"PYTHONPATH": str(folder)}
    with Zygote(preload=["json"], environment=variables, log=folder / "zygote.log") as process:
        for _ in range(2):
            job = process.fork(
                "deeds:imported",
                {"name": "counts"},
                log=folder / "job.log",
                directory=folder,
                python_path=[*sys.path, str(folder)],
                preload=("counts:call",),
            )

            assert job.ask("is it?", limit=PATIENCE) == [True]
    assert counted.read_text() == "."


def test_a_job_is_asked_for_while_others_are_imported_for(folder: Path) -> None:
    """What one job has imported takes seconds, in which its caller goes on with another one."""
    (folder / "slow.py").write_text("import time\ntime.sleep(2)\n")
    variables = environment() | {"PYTHONPATH": str(folder)}
    fork = partial(
        Zygote.fork,
        log=folder / "job.log",
        directory=folder,
        python_path=[*sys.path, str(folder)],
    )
    with Zygote(preload=["json"], environment=variables, log=folder / "zygote.log") as process:
        first = fork(process, "deeds:answers", {"greeting": "hello"})
        slow = fork(process, "deeds:imported", {"name": "slow"}, preload=("slow",))
        started = time.monotonic()
        first.ask("one", limit=PATIENCE)

        assert time.monotonic() - started < 1.5
        # Two seconds are more than its limit, and are not its own.
        assert slow.ask("is it?", limit=1) == [True]
        assert time.monotonic() - started > 1.5


def test_a_job_that_was_never_forked_has_died(zygote: Zygote, fork: Callable[..., Job]) -> None:
    """The process that was to fork it has ended: one sentence, and nothing waits for it."""
    fork("answers", greeting="hello").ask("one", limit=PATIENCE)
    os.kill(zygote._process.pid, signal.SIGSTOP)
    job = fork("answers", greeting="hello")
    os.kill(zygote._process.pid, signal.SIGKILL)

    with pytest.raises(JobDied, match="the process that forks others has ended"):
        job.ask("one", limit=PATIENCE)
    assert job.ended()
    job.close()


def gone(*pids: int) -> bool:
    """Tell whether processes are gone, in time."""
    alive = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            alive.append(psutil.Process(pid))
    return not psutil.wait_procs(alive, PATIENCE)[1]


def test_a_job_answers(fork: Callable[..., Job], folder: Path) -> None:
    """Strings are progress, anything else is the answer; what a job prints is in its log."""
    job = fork("answers", greeting="hello")
    heard: list[str] = []

    assert job.ask("one", limit=PATIENCE, progress=heard.append) == ["hello", "one", str(folder)]
    assert job.ask("two", limit=PATIENCE) == ["hello", "two", str(folder)]
    assert heard == ["thinking about one"]
    job.close()
    assert gone(job.pid)
    assert (
        folder / "job.log"
    ).read_text() == "was asked one\nwas asked two\nnobody asks any more\n"


def test_the_number_of_an_earlier_job_tells_nothing(
    zygote: Zygote, fork: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process numbers are given out again: how the earlier process ended is forgotten."""
    largest = int(Path("/proc/sys/kernel/pid_max").read_text())
    monkeypatch.setattr(zygote, "_ended", dict.fromkeys(range(largest), 0))
    with pytest.raises(JobDied) as died:
        fork("exits").ask("anything", limit=PATIENCE)

    assert died.value.exit_status == 7


@pytest.mark.parametrize(
    ("deed", "sentence", "status"),
    [
        ("exits", "the process ended with exit status 7", 7),
        ("is_killed", "the process was ended by signal SIGKILL", -9),
        ("raises", "the process ended with exit status 1", 1),
    ],
)
def test_a_job_that_dies_is_told(
    fork: Callable[..., Job], deed: str, sentence: str, status: int
) -> None:
    """A job that ends before it answers is told in one sentence, with its exit status."""
    with pytest.raises(JobDied) as caught:
        fork(deed).ask("anything", limit=PATIENCE)

    assert str(caught.value) == sentence
    assert caught.value.exit_status == status


def test_jobs_are_asked_at_the_same_time(fork: Callable[..., Job]) -> None:
    """Each is heard when it answers, the slow one last; one that dies is told by itself."""
    slow, quick, bad = fork("gets_on"), fork("answers", greeting="hello"), fork("exits")
    jobs = {"slow": slow, "quick": quick, "bad": bad}
    for job in jobs.values():
        job.put("one", limit=PATIENCE)
    heard: dict[str, object] = {}
    while jobs:
        first_heard(jobs.values(), PATIENCE)
        for name, job in list(jobs.items()):
            try:
                answer = job.hear()
            except JobDied as error:
                answer = error.exit_status
            if answer is not NOT_YET:
                heard[name] = answer
                del jobs[name]

    assert heard["slow"] == ["done"]
    assert heard["bad"] == 7
    assert isinstance(heard["quick"], list)
    assert list(heard)[-1] == "slow"


def test_a_job_that_is_told_to_leave_ends_by_itself(fork: Callable[..., Job]) -> None:
    """Nobody has to wait for it; that it has ended is known later."""
    job = fork("answers", greeting="hello")
    job.ask("one", limit=PATIENCE)
    assert not job.ended()
    job.leave()

    assert gone(job.pid)
    assert job.ended()


def test_what_a_job_raised_is_in_its_log(fork: Callable[..., Job], folder: Path) -> None:
    """An exception that nobody caught is written to the log of the job."""
    with pytest.raises(JobDied):
        fork("raises").ask("anything", limit=PATIENCE)

    assert "LookupError: nothing there" in (folder / "job.log").read_text()


def test_a_job_that_gets_on_is_left_alone(fork: Callable[..., Job]) -> None:
    """Its limit begins anew with every sign of life; an empty one is told nobody."""
    heard: list[str] = []
    assert fork("gets_on").ask("anything", limit=1, progress=heard.append) == ["done"]
    assert not heard


@pytest.mark.parametrize(("seconds", "returning"), [(60, True), (0.5, False)])
def test_a_job_whose_calls_return_is_not_one_whose_call_hangs(
    fork: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, seconds: float, returning: bool
) -> None:
    """The time is over for both; only calls that return afterwards tell one from the other."""
    monkeypatch.setattr(client, "CALL_RETURNS", 2.0)
    with pytest.raises(JobHung, match="did not answer within 1 s") as caught:
        fork("has_calls_return", seconds=seconds).ask("anything", limit=1)
    assert caught.value.returning is returning


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")
def test_a_job_that_gets_no_core_has_more_time(fork: Callable[..., Job]) -> None:
    """A second and a half in which others had the core does not count."""
    assert fork("computes").ask("anything", limit=1) == ["done"]


def test_a_job_that_hangs_is_ended(fork: Callable[..., Job]) -> None:
    """After its limit a job is killed with everything it started; its stack says where it was."""
    job = fork("hangs")
    heard: list[str] = []

    with pytest.raises(JobHung, match="did not answer within 1 s") as caught:
        job.ask("anything", limit=1, progress=heard.append)

    assert "in hangs" in caught.value.stack
    assert gone(job.pid, int(heard[0].removeprefix("child ")))


def test_a_job_leaves_no_child(fork: Callable[..., Job]) -> None:
    """What a plugin started and forgot is ended with its job."""
    job = fork("leaves_a_child")
    (child,) = job.ask("anything", limit=PATIENCE)
    job.close()

    assert gone(job.pid, child)


def test_a_job_leaves_no_temporary_files(fork: Callable[..., Job]) -> None:
    """They go with the job: vLLM leaves sockets, and what is killed leaves everything."""
    job, other = fork("makes_files"), fork("makes_files")
    (file, folder), (others, _) = (each.ask("", limit=PATIENCE) for each in (job, other))
    assert Path(file).is_relative_to(folder)

    job.close()
    deadline = time.monotonic() + PATIENCE
    while Path(folder).exists() and time.monotonic() < deadline:
        time.sleep(0.05)

    assert not Path(folder).exists()
    assert Path(others).exists()


def test_a_job_leaves_no_one_who_hides(fork: Callable[..., Job]) -> None:
    """What was started in sessions of its own, by children that ended, is ended all the same."""
    job = fork("scatters")
    other = fork("answers", greeting="hello")
    children = job.ask("anything", limit=PATIENCE)
    assert len(children) == 20
    job.close()

    assert gone(*children)
    assert other.ask("one", limit=PATIENCE)[0] == "hello"


def test_other_jobs_survive_one_that_dies(fork: Callable[..., Job]) -> None:
    """A job that ends its own process harms nobody else."""
    good, bad = fork("answers", greeting="hello"), fork("exits")
    with pytest.raises(JobDied):
        bad.ask("anything", limit=PATIENCE)

    assert good.ask("one", limit=PATIENCE)[0] == "hello"


def test_an_interrupted_question_ends_its_job_at_once(
    fork: Callable[..., Job], folder: Path
) -> None:
    """After Ctrl-C nobody waits for a plugin, not even one that catches what it can."""
    job = fork("hangs_in_a_plugin")

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.ask("anything", limit=PATIENCE, progress=interrupt)
    started = time.monotonic()
    job.close()

    assert time.monotonic() - started < 5
    assert gone(job.pid)
    assert (folder / "job.log").read_text() == ""


def test_a_hurried_job_does_not_finish_what_it_began(fork: Callable[..., Job]) -> None:
    """After Ctrl-C nobody waits for an engine that starts before anything is asked of it."""
    job = fork("starts")
    started = time.monotonic()
    job.leave(hurried=True)
    job.close()

    assert time.monotonic() - started < 5
    assert gone(job.pid)


def test_closing_the_zygote_ends_every_job(folder: Path) -> None:
    """No process of a run survives the run."""
    (folder / "deeds.py").write_text(DEEDS)
    with Zygote(preload=["json"], environment=environment(), log=folder / "z.log") as zygote:
        jobs = [
            zygote.fork(
                f"deeds:{deed}",
                {},
                log=folder / "job.log",
                directory=folder,
                python_path=[*sys.path, str(folder)],
            )
            for deed in ("hangs", "exits", "hangs_in_a_plugin")
        ]
        pids = [zygote._process.pid, *(job.pid for job in jobs)]

    assert gone(*pids)


def test_closing_does_not_wait_for_an_import(folder: Path) -> None:
    """A run that ends before vLLM is imported ends at once."""
    (folder / "slow.py").write_text("import time; time.sleep(600)")
    started = time.monotonic()
    with Zygote(preload=["slow"], environment=environment(folder), log=folder / "z.log") as zygote:
        pid = zygote._process.pid

    assert time.monotonic() - started < 5
    assert gone(pid)


@pytest.mark.parametrize(
    ("deed", "count", "more"),
    [("hangs", 3, ()), ("scatters", 22, ()), ("scatters", 22, ("unread",))],
)
def test_nobody_survives_a_killed_parent(
    folder: Path, deed: str, count: int, more: tuple[str, ...]
) -> None:
    """When the caller is killed, the zygote ends its jobs, what they started, and itself.

    So it does where the caller leaves a message unread.
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder), f"deeds:{deed}", *more],
        env=environment(folder),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]

    parent.kill()
    parent.communicate()

    assert len(pids) == count
    assert gone(*pids)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "raise RuntimeError('no wheel')",
            "vLLM could not be imported: importing fails raised RuntimeError: no wheel.",
        ),
        (
            "import os, sys; print('illegal instruction', flush=True); os._exit(132)",
            "vLLM could not be imported: the process ended with status 132 (illegal instruction).",
        ),
        (
            "raise SystemExit('go away')",
            "vLLM could not be imported: importing fails raised SystemExit: go away.",
        ),
    ],
    ids=["raises", "dies", "exits"],
)
def test_a_host_that_cannot_be_imported_is_told(folder: Path, source: str, sentence: str) -> None:
    """When importing fails, one sentence says why."""
    (folder / "fails.py").write_text(source)
    zygote = Zygote(preload=["fails"], environment=environment(folder), log=folder / "z.log")

    with zygote, pytest.raises(ZygoteFailed) as caught:
        zygote.wait_ready()

    assert str(caught.value) == sentence


def test_a_job_does_not_inherit_the_callers_files(fork: Callable[..., Job]) -> None:
    """A job has no open file of the caller but its connection and its log."""
    job = fork("answers", greeting="hello")
    job.ask("one", limit=PATIENCE)
    opened = {str(link.readlink()) for link in Path(f"/proc/{job.pid}/fd").iterdir()}
    files = {Path(name).name for name in opened if name.startswith("/")}

    assert files == {"null", "job.log"}
