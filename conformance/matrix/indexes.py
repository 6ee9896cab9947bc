# SPDX-License-Identifier: Apache-2.0
"""Where packages come from: what pip is told on this machine, told to uv.

uv does not read pip's configuration, which is where many a machine says what it installs from.
As a program it prints the same as ``export`` lines for a shell; it needs nothing but Python.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from contextlib import suppress

#: Where pip looks first: its environment variables, then these sections of its files.
SECTIONS = (":env:", "install", "global")

TRUE = ("1", "true", "yes", "on")


def uv_settings(configured: str) -> dict[str, str]:
    """Return what ``pip config list`` says as environment variables of uv."""
    options = _options(configured)
    found = {
        "UV_FIND_LINKS": ",".join(options.get("find-links", "").split()),
        "UV_DEFAULT_INDEX": options.get("index-url", ""),
        "SSL_CERT_FILE": options.get("cert", ""),
        "UV_HTTP_TIMEOUT": options.get("default-timeout", ""),
        "UV_INSECURE_HOST": options.get("trusted-host", ""),
        "UV_NO_INDEX": "1" if options.get("no-index", "").lower() in TRUE else "",
    }
    if more := options.get("extra-index-url", "").split():
        # pip takes the best of all indexes, uv by itself the first that has the package,
        # and of two that have the same version the one named last.
        # That matters where one of them has a wheel for every machine, without the C library.
        found |= {"UV_INDEX": " ".join(reversed(more)), "UV_INDEX_STRATEGY": "unsafe-best-match"}
    # What uv is told itself comes first.
    return {name: value for name, value in found.items() if value and not os.environ.get(name)}


def configured() -> str:
    """Return what ``pip config list`` says here; nothing where no pip runs.

    The first on PATH may be a shim for a Python that is not there: then this Python's own is asked.
    """
    for pip in (["pip"], [sys.executable, "-m", "pip"]):
        with suppress(OSError, subprocess.CalledProcessError):
            return subprocess.run(
                [*pip, "config", "list"], check=True, capture_output=True, text=True
            ).stdout
    return ""


def _options(configured: str) -> dict[str, str]:
    """Return options by name, from the section that speaks first."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in configured.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.partition(".")
        if section in found:
            found[section][name] = str(ast.literal_eval(value))
    return found["global"] | found["install"] | found[":env:"]


if __name__ == "__main__":
    for variable, text in uv_settings(configured()).items():
        print(f"export {variable}={shlex.quote(text)}")  # noqa: T201 - what it is for
