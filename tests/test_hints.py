# SPDX-License-Identifier: Apache-2.0
"""What a profile would have to have for a line to run, as far as a source says so."""

from __future__ import annotations

import ast
from textwrap import dedent
from typing import Any

import pytest

from conformance.coverage.gaps import Decided, Want
from conformance.coverage.hints import Sent, hints, said

FUNCTION = dedent(
    """\
    WORDS = {"yes": 1}

    class Hook:
        def __init__(self, strict=False, *, words=(), given=None):
            self.strict = strict
            self._words = words
            self.known = {"yes": 1}
            self.given = given

        def score(self, params):
            args = params.extra_args or {}
            mode = args.get("mode")
            tokens = args["tokens"]
            STATEMENT
                pass
    """
)


def _found(statement: str, want: Want, profile: object) -> list[str]:
    tree = ast.parse(FUNCTION.replace("STATEMENT", statement))
    made = tree.body[-1]
    assert isinstance(made, ast.ClassDef)
    function = made.body[-1]
    assert isinstance(function, ast.FunctionDef)
    last: Any = function.body[-1]
    expression = last.iter if isinstance(last, ast.For) else last.test
    found = hints(Decided(expression, want, function), Sent.of(profile), tree)
    return [said(hint.document()) for hint in found]


#: A profile that says how a model writes, and sends nothing of its own.
WRITES = {"format": "hermes", "samples": [{"text": "x", "content": "x"}]}

PROFILE = {"on": [{"extra_args": {"mode": "soft", "tokens": [1]}}]}
BARE = {"on": [{"extra_args": {"mode": "soft", "tokens": []}}]}


@pytest.mark.parametrize(
    ("statement", "want", "profile", "expected"),
    [
        ("if args.get('softly'):", Want.TRUE, PROFILE, "nothing in the profile has `softly`"),
        ("if 'softly' in args:", Want.TRUE, PROFILE, "nothing in the profile has `softly`"),
        ("if 'softly' in args:", Want.FALSE, PROFILE, None),
        ("if args.get('softly'):", Want.TRUE, WRITES, None),
        ("if self.vocab.get('<call>'):", Want.TRUE, PROFILE, None),
        ("if 'softly' not in args:", Want.FALSE, PROFILE, "nothing in the profile has `softly`"),
        ("if '<call>' in args:", Want.TRUE, PROFILE, None),
        ("if mode == 'hard':", Want.TRUE, PROFILE, "no `mode` in the profile is 'hard'"),
        ("if mode in ('soft', 'off'):", Want.TRUE, PROFILE, "no `mode` in the profile is 'off'"),
        ("if mode == 'soft':", Want.FALSE, PROFILE, "every `mode` in the profile is 'soft'"),
        ("if not mode != 'hard':", Want.TRUE, PROFILE, "no `mode` in the profile is 'hard'"),
        ("if mode is None:", Want.TRUE, PROFILE, "no `mode` in the profile is None"),
        (
            "if isinstance(mode, int):",
            Want.TRUE,
            PROFILE,
            "no `mode` in the profile is of type int",
        ),
        ("for token in tokens:", Want.EMPTY, PROFILE, "no `tokens` in the profile is empty"),
        (
            "for n, t in enumerate(tokens):",
            Want.EMPTY,
            PROFILE,
            "no `tokens` in the profile is empty",
        ),
        ("for token in tokens:", Want.ITEMS, BARE, "every `tokens` in the profile is empty"),
        ("if tokens:", Want.FALSE, PROFILE, "every `tokens` in the profile counts as true"),
        ("if tokens:", Want.TRUE, BARE, "no `tokens` in the profile counts as true"),
        (
            "if self.strict:",
            Want.TRUE,
            {"arguments": [{}]},
            "no `arguments` in the profile have `strict`",
        ),
        (
            "if self._words:",
            Want.TRUE,
            {"arguments": [{}]},
            "no `arguments` in the profile have `words`",
        ),
        ("if self.strict:", Want.TRUE, {"arguments": [{"strict": True}]}, None),
        ("if self.strict:", Want.TRUE, PROFILE, None),
        ("if tokens[0] > 3:", Want.TRUE, PROFILE, None),
        ("if params.seed:", Want.TRUE, PROFILE, None),
        ("if self.known.get('yes'):", Want.TRUE, PROFILE, None),
        ("if WORDS['yes'] in tokens:", Want.TRUE, PROFILE, None),
        ("if self.given['softer']:", Want.TRUE, PROFILE, None),
        ("if args['yes']:", Want.TRUE, PROFILE, None),
        ("if self.rows[0]['width']:", Want.TRUE, PROFILE, None),
        ("if 'stride' in self.model_config['data']:", Want.TRUE, PROFILE, None),
        ("if params.config['stride']:", Want.TRUE, PROFILE, None),
        (
            "if getattr(params, 'extra_args', None)['stride'] < 3:",
            Want.TRUE,
            PROFILE,
            "nothing in the profile has `stride`",
        ),
        ("for n in range(measured(params)['stride']):", Want.EMPTY, PROFILE, None),
        (
            "if any(one['softly'] for one in tokens):",
            Want.TRUE,
            PROFILE,
            "nothing in the profile has `softly`",
        ),
        (
            "if os.environ.get('MODE'):",
            Want.TRUE,
            PROFILE,
            "no `environment` in the profile sets `MODE`",
        ),
        ("if os.getenv('MODE'):", Want.TRUE, {**PROFILE, "environment": {"MODE": "x"}}, None),
    ],
)
def test_what_a_profile_lacks(
    statement: str, want: Want, profile: object, expected: str | None
) -> None:
    """A key, a value, a type, an empty list or an option; nothing where the source does not say."""
    assert _found(statement, want, profile) == ([expected] if expected else [])


HELPED = dedent(
    """\
    class Hook:
        def score(self, params):
            for index, one in enumerate(params.rows):
                self.helped(one.extra_args, self.rows)
            return self.shown({"width": 1}, meta=self.rows)

        def helped(self, args, rows):
            return KEY

        def shown(self, found, *, meta):
            return KEY

        def processed(self, hf_data, hf_kwargs):
            return KEY
    """
)


@pytest.mark.parametrize(
    ("function", "expression", "expected"),
    [
        ("helped", "args['stride']", "nothing in the profile has `stride`"),
        ("helped", "rows['stride']", None),
        ("shown", "found['stride']", None),
        ("shown", "meta['stride']", None),
        ("processed", "hf_data.get('images', ())", None),
        ("processed", "hf_kwargs['stride']", "nothing in the profile has `stride`"),
    ],
)
def test_a_helper_is_given_what_its_caller_has(
    function: str, expression: str, expected: str | None
) -> None:
    """Only what is handed on from a request has keys that a profile may lack."""
    tree = ast.parse(HELPED.replace("KEY", expression))
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    within = next(node for node in nodes if node.name == function)
    (last,) = within.body
    assert isinstance(last, ast.Return)
    assert last.value is not None
    found = hints(Decided(last.value, Want.TRUE, within), Sent.of(PROFILE), tree)
    assert [said(hint.document()) for hint in found] == ([expected] if expected else [])
