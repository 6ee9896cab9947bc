# SPDX-License-Identifier: Apache-2.0
"""Reading the templates of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jinja2


def template(
    name: str,
    *,
    escape_html: bool = False,
    marks: tuple[str, str] = ("{{", "}}"),
    **filters: Callable[..., Any],
) -> jinja2.Template:
    """Return a template in which a missing value is an error; marks stand around expressions."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conformance.reporting"),
        autoescape=escape_html,  # noqa: S701 - most are no HTML
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        variable_start_string=marks[0],
        variable_end_string=marks[1],
    )
    environment.filters |= filters
    return environment.get_template(name)
