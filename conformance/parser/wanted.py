# SPDX-License-Identifier: Apache-2.0
"""What a run and a profile say of a parser's trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import attrs

from conformance.parser import formats, samples, template, tokens
from conformance.parser.bench import Bench
from conformance.parser.formats import Format
from conformance.parser.samples import Sample
from conformance.parser.tools import TOOLS
from conformance.plugin import expectation
from conformance.settings import Budget, UsageError
from conformance.suite import Opening


def wanted_model(section: Mapping[str, Any], model: str, origin: str | None) -> str | None:
    """Return the folder of the model whose tokenizer answers are in; None where it is made up.

    Raises:
        UsageError: the folder has no tokenizer that can be read, or the profile names tokens, too.

    """
    if "tokenizer" not in section:
        return None
    where = f"profile {origin}: [parser] tokenizer = {section['tokenizer']!r}"
    for key in ("special_tokens", "skipped_tokens"):
        if key in section:
            raise UsageError(f"{where} has tokens of its own; leave {key} out.")
    try:
        tokens.of_model(model)
    except ValueError as error:
        raise UsageError(f"{where}: {error}.") from None
    return model


@attrs.frozen
class Wanted:
    """What a run and a profile say of a trial."""

    role: str
    section: Mapping[str, Any]  #: of the profile
    origin: str | None  #: of that
    budget: Budget
    seed: int
    folder: str = "."  #: in which a file of a partner is looked for
    model: str | None = None  #: a folder with the tokenizer that the profile names

    @classmethod
    def of(cls, opening: Opening, role: str) -> Self:
        """Return what a trial is opened with."""
        settings, section, origin = opening.settings, opening.section, opening.origin
        folder = opening.plugin.root or str(settings.directory)
        model = wanted_model(section, opening.model, origin)
        return cls(role, section, origin, settings.budget, settings.seed, folder, model)

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """The tools of requests."""
        named = self.section.get("tools")
        if not named:
            return TOOLS
        return tuple(
            tool if "function" in tool else {"type": "function", "function": tool} for tool in named
        )

    def bench(self, cls: type[Any]) -> Bench:
        """Return a parser with tokens that the profile names."""
        return Bench(
            cls=cls,
            role=self.role,
            tools=self.tools,
            special=tuple(map(str, self.section.get("special_tokens", ()))),
            skipped=tuple(map(str, self.section.get("skipped_tokens", ()))),
            chat=dict(self.section.get("chat_template_kwargs", {})),
            model=self.model,
        )

    def samples(self) -> tuple[Sample, ...]:
        """Return the samples of the profile.

        Raises:
            UsageError: one is written wrong.

        """
        return samples.read(self.section, self.origin)

    def format(self) -> Format | None:
        """Return the format that the profile names, or whose function or template it has.

        Raises:
            UsageError: nobody knows it.

        """
        if template.KEY in self.section:
            named = template.Template.of(self.section, self.origin, self.role, self.model)
            return named.format()
        if (serialise := self.section.get(expectation.SERIALISE)) is not None:
            return formats.own(serialise.load(), self.section, self.role)
        known = {each.name: each for each in formats.KNOWN[self.role]}
        if (name := self.section.get("format")) is None:
            return None
        if name in known:
            return known[name]
        raise UsageError(
            f"profile {self.origin}: [parser] format {name!r} is none of {', '.join(known)}."
        )
