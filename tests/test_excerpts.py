# SPDX-License-Identifier: Apache-2.0
"""A module is cut down to one function, with all that it uses and nothing else."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from conformance.counterexample.excerpts import excerpt

PLAYER = dedent(
    '''
    """Plays cases."""

    import copy
    import json
    import os.path
    from collections.abc import Callable, Iterator

    import torch

    # How often.
    TIMES: int = 3
    OTHER = TIMES


    @copy.copy
    class Context:
        """Is used by helpers alone."""


    def inner(value: int) -> str:
        """Uses what another one needs, and itself."""
        return json.dumps(inner(value - 1)) if value else str(Context)


    def one(make: Callable[[], int]) -> str:
        """Is played."""
        # TIMES is a constant.
        return "".join(inner(make()) for _ in range(TIMES))


    def other() -> Iterator[torch.Tensor]:
        """Is played with torch."""
        yield from os.path.split("OTHER")  # in a text
    '''
)


def test_a_function_comes_with_what_it_uses() -> None:
    """Whatever it uses uses things in its turn: a comment and a decorator come along."""
    found = excerpt(PLAYER, "one")

    assert found.standard == "import copy\nimport json\nfrom collections.abc import Callable"
    assert found.others == ""
    names = [getattr(node, "name", "TIMES") for node in ast.parse(found.code).body]
    assert names == ["TIMES", "Context", "inner", "one"]
    assert found.code.startswith("# How often.\nTIMES: int = 3\n\n\n@copy.copy\nclass Context:")
    assert "# TIMES is a constant." in found.code


HOST = dedent(
    '''
    """Plays cases."""

    import copy
    import json
    from typing import NamedTuple

    THREE = 3


    class Host:
        """Serves."""

        def __init__(self) -> None:
            self.plugin = copy.copy(THREE)

        # How it is served alone.
        def alone(self) -> str:
            """Is called."""
            return self.helped()

        @property
        def helped(self) -> str:
            """Is called by what is called."""
            return ""

        def long(self) -> str:
            """Is not called."""
            return json.dumps(NOTHING)


    class Other(Host):
        """Serves in another way."""

        def long(self) -> str:
            """Is not called."""
            return ""

        def begin(self) -> None:
            """Is called by its name."""


    class Pair(NamedTuple):
        """Others call its methods."""

        def wide(self) -> int:
            """Nobody here calls it."""
            return THREE


    NOTHING = 0


    def check(host: Host, pair: Pair) -> str:
        """Is played."""
        return host.alone()
    '''
)


def test_classes_come_without_methods_that_nothing_calls() -> None:
    """What these alone use does not come either; what others may call does."""
    found = excerpt(HOST, "check", uses=("Other",), text='check(Other(), ["begin"])')

    classes = [node for node in ast.parse(found.code).body if isinstance(node, ast.ClassDef)]
    methods = {
        of.name: [node.name for node in of.body if isinstance(node, ast.FunctionDef)]
        for of in classes
    }
    assert methods == {
        "Host": ["__init__", "alone", "helped"],
        "Other": ["begin"],
        "Pair": ["wide"],
    }
    assert "json" not in found.standard
    assert "NOTHING" not in found.code
    assert "    # How it is served alone.\n    def alone" in found.code
    assert 'other way."""\n\n    def begin' in found.code


def test_imports_are_of_two_kinds() -> None:
    """A program says something to vLLM before it imports it."""
    found = excerpt(PLAYER, "other", beside=("sys", "copy"))

    standard = [
        "import copy",
        "import os.path",
        "import sys",
        "from collections.abc import Iterator",
    ]
    assert found.standard.splitlines() == standard
    assert found.others == "import torch"
    assert "OTHER = " not in found.code


def test_what_cannot_be_cut_is_refused() -> None:
    """A function that is not there, and statements that define nothing."""
    with pytest.raises(LookupError, match="no nothing"):
        excerpt(PLAYER, "nothing")
    with pytest.raises(ValueError, match="line 3 "):
        excerpt('"""Plays."""\n\nprint("played")\n', "one")
