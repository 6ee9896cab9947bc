# SPDX-License-Identifier: Apache-2.0
"""Links of these pages to files of the repository, for MkDocs, which knows its own folder alone."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)]*)\)")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that lead out of docs/ to the repository, or leave their words alone."""
    del files

    def outside(match: re.Match[str]) -> str:
        folder = posixpath.dirname(posixpath.join("docs", page.file.src_uri))
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        if path.startswith("docs/"):
            return match[0]
        if config.repo_url:
            return f"[{match[1]}]({config.repo_url.rstrip('/')}/blob/main/{path})"
        return match[1]

    return _LINK.sub(outside, markdown)
