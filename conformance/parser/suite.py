# SPDX-License-Identifier: Apache-2.0
"""What workers ask of both generations: is a class a parser, open its trial, replay its case."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.expectation import located
from conformance.parser import formats
from conformance.parser.bench import NotMade, composed
from conformance.parser.partners import resolved
from conformance.parser.tokens import tokenizer
from conformance.rules import Evidence
from conformance.settings import Budget
from conformance.suite import Replayed, Suite, Unopened, replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.loading import Maker
    from conformance.suite import Opening
    from conformance.suite import Trial as Opened


def suite(role: str, base: str, module: str, telling: str, shares: tuple[str, str]) -> Suite:
    """Return the suite of one kind of parser.

    Args:
        role: what the parser is for.
        base: name of the class that parsers derive from.
        module: where that class is.
        telling: the method that tells what the author meant.
        shares: the rule about what loading leaves to others, and that about instances.

    """

    def recognises(cls: type) -> bool:
        return any(each.__name__ == base and each.__module__ == module for each in cls.__mro__[1:])

    def meant(cls: type) -> bool:
        return recognises(cls) or telling in vars(cls)

    def opened(opening: Opening) -> Opened:
        try:
            composed(opening.cls, role)
        except ImportError as error:  # no ParserManager, or no package that the parser is made of
            why = f"the installed vLLM cannot compose the parser here: {error}"
            return Unopened(" ".join(why.split()), opening.evidence)
        settings = opening.settings
        folder = opening.plugin.root or str(settings.directory)
        if opening.evidence is Evidence.SERVER:
            from conformance.parser.server import Trial

            return Trial(opening, role)
        from conformance.parser.checks import trial

        return trial(
            opening.cls,
            role,
            opening.section,
            origin=opening.origin,
            budget=settings.budget,
            seed=settings.seed,
            folder=folder,
        )

    def replay(cls: type, case: Mapping[str, Any], _model: str) -> Replayed:
        from conformance.parser.checks import trial

        made = trial(
            cls,
            role,
            located(case["section"], Path(case.get("beside", ".")), "the case"),
            origin="the case",
            budget=Budget.STANDARD,
            seed=int(case["seed"]),
        )
        return replayed(made.check(case["rule"]))

    return Suite(
        base=f"{module}.{base}",
        recognises=recognises,
        meant=meant,
        open_trial=opened,
        replay=replay,
        resolved=partial(resolved, role),
        maker=partial(_maker, role),
        shares=shares,
    )


def _maker(role: str, _: str, section: Mapping[str, Any]) -> Maker:
    """Return what makes parsers as a server does for a request, where their tokens are known."""
    from conformance.parser import samples
    from conformance.parser.bench import Bench

    named = tuple(map(str, section.get("special_tokens", ())))
    chat = dict(section.get("chat_template_kwargs", {}))

    def ready() -> Callable[[Any], object]:
        # With the tokens of each model that is known: nobody knows yet which one it is for.
        known = dict.fromkeys((named, *(each.special for each in formats.KNOWN[role])))
        for special in known:
            tokenizer(special)

        def make(cls: type) -> object:
            for special in known:
                bench = Bench(cls=cls, role=role, tools=samples.TOOLS, special=special, chat=chat)
                with suppress(NotMade):
                    return bench.make(bench.request(stream=True))
            return None

        return make

    return ready
