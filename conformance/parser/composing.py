# SPDX-License-Identifier: Apache-2.0
"""The parser that vLLM composes of plugins, and what this harness calls it with."""

from __future__ import annotations

import inspect
from typing import Any

from conformance.parser.roles import NAME, manager, name_of, other


def composed(cls: type[Any], role: str, partner: type[Any] | None = None) -> type[Any]:
    """Return vLLM's parser with these classes in it, as a server's options compose it.

    Raises:
        ImportError: this release has no such parser.

    """
    from vllm.parser.parser_manager import ParserManager

    names: dict[str, Any] = {}
    for kind, each in ((role, cls), (other(role), partner)):
        if each is not None:
            names[f"{kind}_parser_name"] = name = name_of(each, kind)
            if name == NAME:
                manager(kind).register_module(name=name, force=True, module=each)
    parser: type[Any] | None = ParserManager.get_parser(**names, enable_auto_tools=True)
    assert parser is not None
    _takes(parser, "__init__", None, None, chat_template_kwargs={}, model_config=None)
    _takes(parser, "parse", "", None, enable_auto_tools=True, model_output_token_ids=[])
    delta = {"delta_text": "", "delta_token_ids": [], "prompt_token_ids": []}
    _takes(parser, "parse_delta", request=None, finished=True, **delta)
    _takes(parser, "adjust_request", None)
    return parser


def _takes(parser: type[Any], method: str, *arguments: object, **keywords: object) -> None:
    """Look whether a method of vLLM's takes what this harness calls it with.

    Raises:
        ImportError: this release has another one.

    """
    try:
        inspect.signature(getattr(parser, method)).bind(parser, *arguments, **keywords)
    except (AttributeError, TypeError) as error:
        raise ImportError(f"{parser.__mro__[1].__name__}.{method}: {error}") from None
