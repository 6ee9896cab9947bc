# SPDX-License-Identifier: Apache-2.0
"""Reading the templates of this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jinja2


def template(
    name: str,
    filters: Mapping[str, Callable[..., Any]] | None = None,
    *,
    escape_html: bool = False,
    marks: tuple[str, str] = ("{{", "}}"),
) -> jinja2.Template:
    """Return a template in which a missing value is an error.

    Args:
        name: its file.
        filters: what it may apply to values.
        escape_html: whether values are escaped for HTML.
        marks: what stands around an expression.

    """
    begin, end = marks
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conformance.reporting"),
        autoescape=escape_html,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        variable_start_string=begin,
        variable_end_string=end,
    )
    environment.filters |= filters or {}
    return environment.get_template(name)
