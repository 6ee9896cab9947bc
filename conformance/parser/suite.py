# SPDX-License-Identifier: Apache-2.0
"""What workers ask of both generations: is a class a parser, open its trial, replay its case."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from conformance.parser import formats
from conformance.parser.bench import NotMade
from conformance.parser.composing import composed
from conformance.parser.partners import resolved
from conformance.parser.roles import ROLES
from conformance.parser.tokens import of_model, tokenizer
from conformance.plugin.expectation import located
from conformance.rules import Evidence
from conformance.settings import Budget
from conformance.suite import Replayed, Suite, Unopened, replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.suite import Opening
    from conformance.suite import Trial as Opened
    from conformance.watching.loading_process import Maker


def suite(role: str) -> Suite:
    """Return the suite of one kind of parser."""
    names = ROLES[role]

    def recognises(cls: type) -> bool:
        found = ((each.__module__, each.__name__) for each in cls.__mro__[1:])
        return (names.module, names.base) in found

    return Suite(
        base=f"{names.module}.{names.base}",
        recognises=recognises,
        meant=lambda cls: recognises(cls) or names.streamed in vars(cls),
        open_trial=partial(_opened, role),
        replay=partial(_replay, role),
        resolved=partial(resolved, role),
        maker=partial(_maker, role),
        shares=(names.rule(names.shares), names.rule(1)),
    )


def _opened(role: str, opening: Opening) -> Opened:
    try:
        composed(opening.cls, role)
    except ImportError as error:  # no ParserManager, or no package that the parser is made of
        why = f"the installed vLLM cannot compose the parser here: {error}"
        return Unopened(" ".join(why.split()), opening.evidence)
    if opening.evidence is Evidence.SERVER:
        from conformance.parser.server import Trial

        return Trial(opening, role)
    from conformance.parser import checks
    from conformance.parser.wanted import Wanted

    return checks.trial(opening.cls, Wanted.of(opening, role))


def _replay(role: str, cls: type, case: Mapping[str, Any], model: str) -> Replayed:
    from conformance.parser import checks
    from conformance.parser.wanted import Wanted, wanted_model

    section = located(case["section"], Path(case.get("beside", ".")), "the case")
    named = wanted_model(section, model, "the case")
    wanted = Wanted(role, section, "the case", Budget.STANDARD, int(case["seed"]), model=named)
    return replayed(checks.trial(cls, wanted).check(case["rule"]))


def _maker(role: str, model: str, section: Mapping[str, Any]) -> Maker:
    """Return what makes parsers as a server does for a request, where their tokens are known."""
    from conformance.parser.wanted import Wanted

    named = tuple(map(str, section.get("special_tokens", ())))
    own = model if "tokenizer" in section else None
    chat = {key: value for key, value in section.items() if key == "chat_template_kwargs"}
    wanted = Wanted(role, chat, None, Budget.QUICK, 0, model=own)

    def ready() -> Callable[[Any], object]:
        # With the tokens of each model that is known: nobody knows yet which one it is for.
        formatted = () if own is not None else [each.special for each in formats.KNOWN[role]]
        known = dict.fromkeys((named, *formatted))
        for special in known:
            tokenizer(special) if own is None else of_model(own)

        def make(cls: type) -> object:
            for special in known:
                bench = attrs.evolve(wanted.bench(cls), special=special)
                with suppress(NotMade):
                    return bench.make(bench.request(stream=True))
            return None

        return make

    return ready
