# SPDX-License-Identifier: Apache-2.0
"""What an operator chose: which hooks every engine of this process gets, and how they work.

``vllm serve`` makes its engine itself, so nobody can register hooks on it by a call.
Two ways lead there:

- ``CLASSIFIER_HOOKS`` names them: ``package.module:Class,package.module:function``, or a TOML
  file, in which hooks have arguments;
- a general plugin of the hooks' author calls `add_default_hook`.

Hooks are named one by one, and found by no entry point group of their own: installing a package
must not let it read every answer of a server.
The variables do not start with ``VLLM_``, since vLLM warns of those it does not know.
"""

from __future__ import annotations

import importlib
import os
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reference_plugins.classifier_hook.contract import DEFAULT_REFUSAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reference_plugins.classifier_hook.contract import ExternalClassifierHook

HOOKS = "CLASSIFIER_HOOKS"
STREAMING = "CLASSIFIER_HOOKS_STREAMING"
REFUSAL = "CLASSIFIER_HOOKS_REFUSAL"

_KEYS = {"streaming", "refusal", "hook"}


class ConfigurationRefused(ValueError):
    """What the operator wrote cannot be followed: one sentence."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How the hooks of an engine work."""

    #: ``final``: a stream goes out as it is generated, and a blocking hook replaces its last
    #: chunk; ``hold``: nothing of it goes out before the blocking hooks have decided
    streaming: Literal["final", "hold"] = "final"
    refusal: str = DEFAULT_REFUSAL

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        if self.streaming not in ("final", "hold"):
            raise ConfigurationRefused(
                f"streaming must be 'final' or 'hold' (got {self.streaming!r})"
            )
        # vLLM sends no chunk for an empty text.
        if not self.refusal or not isinstance(self.refusal, str):
            raise ConfigurationRefused(f"refusal must be a text (got {self.refusal!r})")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What every engine of this process gets."""

    policy: Policy = Policy()
    factories: tuple[Callable[[], ExternalClassifierHook], ...] = ()

    def hooks(self) -> list[ExternalClassifierHook]:
        """Make the hooks of one engine.

        Raises:
            ConfigurationRefused: one of them cannot be made.

        """
        return [factory() for factory in self.factories]


#: Makes the hooks that every engine has from now on; see ``plugin.add_default_hook``.
added: list[Callable[[], ExternalClassifierHook]] = []


def configured(environment: Mapping[str, str] = os.environ) -> Configuration:
    """Return what the operator and the general plugins chose, reading files but importing nothing.

    Raises:
        ConfigurationRefused: a name, a value or the file cannot be followed.

    """
    named = environment.get(HOOKS, "").strip()
    if named.endswith(".toml"):
        configuration = _from_file(Path(named))
    else:
        names = [name.strip() for name in named.split(",") if name.strip()]
        configuration = Configuration(factories=tuple(_factory(name, {}) for name in names))
    chosen = {"streaming": environment.get(STREAMING), "refusal": environment.get(REFUSAL)}
    given: dict[str, Any] = {key: value for key, value in chosen.items() if value}
    return Configuration(replace(configuration.policy, **given), (*configuration.factories, *added))


def _from_file(path: Path) -> Configuration:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationRefused(
            f"{HOOKS} names {path}, which cannot be read: {error}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationRefused(f"{path} is not TOML: {error}") from error
    if unknown := sorted(document.keys() - _KEYS):
        raise ConfigurationRefused(f"{path} has {unknown[0]!r}; it may have {sorted(_KEYS)}")
    factories = []
    hooks = document.pop("hook", [])
    if not isinstance(hooks, list):
        raise ConfigurationRefused(f"{path}: hooks are written as [[hook]], one for each")
    for hook in hooks:
        if not isinstance(hook.get("class"), str) or hook.keys() - {"class", "arguments"}:
            raise ConfigurationRefused(
                f"{path}: each [[hook]] has `class`, 'package.module:Class', and may have "
                f"`arguments`, a table (got {hook})"
            )
        factories.append(_factory(hook["class"], hook.get("arguments", {})))
    try:
        policy = Policy(**document)
    except ConfigurationRefused as error:
        raise ConfigurationRefused(f"{path}: {error}") from error
    return Configuration(policy, tuple(factories))


def _factory(name: str, arguments: Mapping[str, Any]) -> Callable[[], ExternalClassifierHook]:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigurationRefused(f"{HOOKS} names hooks as 'package.module:Class' (got {name!r})")

    def make() -> ExternalClassifierHook:
        try:
            made: Any = importlib.import_module(module)
            for part in attribute.split("."):
                made = getattr(made, part)
        except (ImportError, AttributeError) as error:
            raise ConfigurationRefused(
                f"{HOOKS} names {name!r}, which cannot be imported: {error}"
            ) from error
        try:
            hook: ExternalClassifierHook = made(**arguments)
        except Exception as error:
            raise ConfigurationRefused(
                f"the classifier hook {name!r} cannot be made: {type(error).__name__}: {error}"
            ) from error
        return hook

    return make
