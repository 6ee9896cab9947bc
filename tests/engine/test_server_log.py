# SPDX-License-Identifier: Apache-2.0
"""The cause of a failure, read out of lines that vLLM 0.32 really wrote."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from conformance.engine.server_log import cause, last_line, port_was_taken, read_log

if TYPE_CHECKING:
    from pathlib import Path

CRASH_IN_APPLY = """\
(APIServer pid=81) WARNING 11-21 07:03:57 [system_utils.py:255] Found ulimit of 20000 and failed
INFO:     Application startup complete.
(EngineCore pid=84) ERROR 11-21 07:04:06 [core.py:1512] EngineCore encountered a fatal error.
(EngineCore pid=84) ERROR 11-21 07:04:06 [core.py:1512] Traceback (most recent call last):
(EngineCore pid=84) ERROR 11-21 07:04:06 [core.py:1512]   File "crashes.py", line 7, in apply
(EngineCore pid=84) ERROR 11-21 07:04:06 [core.py:1512]     logits[:, 99999] = 0
(EngineCore pid=84) ERROR 11-21 07:04:06 [core.py:1512]     ~~~~~~^^^^^^^^^^
(EngineCore pid=84) ERROR 11-21 07:04:06 [core.py:1512] IndexError: index 99999 is out of bounds
(APIServer pid=81) ERROR 11-21 07:04:06 [async_llm.py:906] AsyncLLM output_handler failed.
"""
ENGINE_DEAD = """\
(APIServer pid=81) ERROR 11-21 07:04:06 [async_llm.py:906] Traceback (most recent call last):
(APIServer pid=81) ERROR 11-21 07:04:06 [async_llm.py:906]     outputs = await engine_core.get()
(APIServer pid=81) ERROR 11-21 07:04:06 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadErr\
or: EngineCore encountered an issue. See stack trace (above) for the root cause.
INFO:     127.0.0.1:55480 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error
INFO:     Finished server process [81]
/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear
  warnings.warn('resource_tracker: There appear to be %d '
"""
REQUEST_FAILED = """\
(APIServer pid=81) ERROR 11-21 07:04:01 [serving.py:20] Traceback (most recent call last):
(APIServer pid=81) ERROR 11-21 07:04:01 [serving.py:20]   File "other.py", line 1, in post_process
(APIServer pid=81) ERROR 11-21 07:04:01 [serving.py:20] RuntimeError: an earlier request
"""
RAISES_AT_IMPORT = """\
(EngineCore pid=90) ERROR 11-21 07:04:33 [core.py:1510] Traceback (most recent call last):
(EngineCore pid=90) ERROR 11-21 07:04:33 [core.py:1510]   File "plugin.py", line 2, in load
(EngineCore pid=90) ERROR 11-21 07:04:33 [core.py:1510] LookupError: no dictionary
(EngineCore pid=90) ERROR 11-21 07:04:33 [core.py:1510]\x20
(EngineCore pid=90) ERROR 11-21 07:04:33 [core.py:1510] The above exception was the direct cause \
of the following exception:
(EngineCore pid=90) ERROR 11-21 07:04:33 [core.py:1510]\x20
(EngineCore pid=90) ERROR 11-21 07:04:33 [core.py:1510] Traceback (most recent call last):
(EngineCore pid=90) ERROR 11-21 07:04:33 [core.py:1510]     raise RuntimeError(
(EngineCore pid=90) ERROR 11-21 07:04:33 [core.py:1510] RuntimeError: Failed to load 0th \
LogitsProcessor plugin plugin:P
Traceback (most recent call last):
  File "plugin.py", line 2, in load
LookupError: no dictionary

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
    raise RuntimeError(
RuntimeError: Failed to load 0th LogitsProcessor plugin plugin:P
Traceback (most recent call last):
  File "cli/main.py", line 2, in main
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
BAD_VALUE = """\
Traceback (most recent call last):
  File "pydantic/_internal/_dataclasses.py", line 121, in __init__
pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig
max_num_seqs
  Input should be greater than or equal to 1 [type=greater_than_equal, input_value=0]
    For further information visit https://errors.pydantic.dev/2.14/v/greater_than_equal
"""
BAD_OPTION = """\
usage: main.py [-h] [-v]
main.py: error: unrecognized arguments: --no-such-option
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (CRASH_IN_APPLY + ENGINE_DEAD, "IndexError: index 99999 is out of bounds"),
        (
            RAISES_AT_IMPORT,
            (
                "RuntimeError: Failed to load 0th LogitsProcessor plugin plugin:P"
                " (from LookupError: no dictionary)"
            ),
        ),
        (
            BAD_VALUE,
            (
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for"
                " SchedulerConfig max_num_seqs Input should be greater than or equal to 1"
                " [type=greater_than_equal, input_value=0]"
            ),
        ),
        (BAD_OPTION, "unrecognized arguments: --no-such-option"),
    ],
    ids=["crash", "import", "value", "option"],
)
def test_cause(log: str, expected: str) -> None:
    """The cause is the exception that started the trouble, not the one that passed it on."""
    assert cause(log) == expected


def test_engine_that_vanished() -> None:
    """An engine that ended without a traceback is not blamed on an earlier request's."""
    assert cause(REQUEST_FAILED + ENGINE_DEAD) == "its engine process ended without an exception"


def test_exception_without_a_message() -> None:
    """An exception of the plugin's own, with no message and no usual name, is a cause too."""
    log = 'Traceback (most recent call last):\n  File "crashes.py", line 1\ncrashes.Broken\n'

    assert cause(log) == "crashes.Broken"


def test_no_exception_at_all() -> None:
    """Without any exception no cause is made up; the last line that says something is there."""
    log = dedent("""\
        (APIServer pid=81) INFO 11-21 07:03:57 [api_utils.py:10] starting
        Illegal instruction
        /lib/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1
          warnings.warn('resource_tracker: There appear to be %d '

        """)

    assert cause(log) is None
    assert last_line(log) == "Illegal instruction"


def test_last_line_loses_its_mark() -> None:
    """What the server said last is shown without process, level, time and file."""
    assert last_line("(APIServer pid=81) INFO 11-21 07:03:57 [a.py:10] loading\n\n") == "loading"


def test_long_lines_are_shortened() -> None:
    """A sentence stays one that can be read."""
    line = last_line("x" * 1000)

    assert line is not None
    assert len(line) == 300
    assert line.endswith("x ...")


def test_port_was_taken() -> None:
    """A lost race for the port is told from every other failure."""
    assert port_was_taken("OSError: [Errno 98] Address already in use\n")
    assert not port_was_taken(RAISES_AT_IMPORT)


def test_empty_and_missing_logs(tmp_path: Path) -> None:
    """An empty log has no cause, and one that is not there counts as empty."""
    assert read_log(tmp_path / "missing.log") == ""
    assert cause("") is None
    assert last_line("\n\n") is None


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    """A log of any length is read in bounded memory, also where it is not UTF-8."""
    path = tmp_path / "long.log"
    path.write_bytes(b"\xff" * 3_000_000 + b"\nthe end\n")

    log = read_log(path)

    assert len(log) == 1 << 20
    assert last_line(log) == "the end"
