# SPDX-License-Identifier: Apache-2.0
"""Classifier hooks for vLLM's ``AsyncLLM``: score, annotate or block every finished completion.

Nothing here imports vLLM until an engine is made.
"""

from __future__ import annotations

from reference_plugins.classifier_hook.configuration import ConfigurationRefused, Policy
from reference_plugins.classifier_hook.contract import (
    DEFAULT_REFUSAL,
    ExternalClassifierHook,
    ScoringContext,
    TokenLogprob,
)
from reference_plugins.classifier_hook.host import hooks_of
from reference_plugins.classifier_hook.mount import MountRefused, register
from reference_plugins.classifier_hook.plugin import add_default_hook, install
from reference_plugins.classifier_hook.registry import HookRefused
from reference_plugins.classifier_hook.scope import request_scope

__all__ = [
    "DEFAULT_REFUSAL",
    "ConfigurationRefused",
    "ExternalClassifierHook",
    "HookRefused",
    "MountRefused",
    "Policy",
    "ScoringContext",
    "TokenLogprob",
    "add_default_hook",
    "hooks_of",
    "install",
    "register",
    "request_scope",
]
