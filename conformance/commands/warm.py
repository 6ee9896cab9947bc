# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance warm``: keep vLLM imported, so that runs start at once.

Imports neither vLLM nor torch.
"""

from __future__ import annotations

import contextlib
import time

import click

from conformance.commands.console import make_console, progress
from conformance.settings import UsageError
from conformance.worker import nursery


@click.command(epilog="Exit status: 0 when it was ended, 3 vLLM cannot be imported, 4 usage.")
def warm() -> None:
    """Keep vLLM imported for later runs, until Ctrl-C.

    The import is most of the time of a short run. While this command runs, certify, replay and
    pytest --plugin-path of the same environment skip it, in any terminal; each still imports the
    plugin itself. A run imports vLLM itself if its variables (VLLM_..., CUDA_... and the like)
    differ from those of this command, or if vLLM or the harness has changed.
    """
    from conformance.running.zygotes import start_nursery

    place = nursery.address()
    if nursery.listens(place):
        raise UsageError(f"vLLM is kept imported already, by another process ({place}).")
    console = make_console()
    started = time.monotonic()
    process = start_nursery(place)
    try:
        with progress(console, "importing vLLM"):
            while not nursery.listens(place):
                if process.poll() is not None:
                    from conformance.running.runner import HarnessError

                    raise HarnessError("vLLM could not be imported.")
                time.sleep(0.1)
        took = time.monotonic() - started
        console.print(f"vLLM is imported ({took:.1f} s); runs start without. Ctrl-C ends this.")
        with contextlib.suppress(KeyboardInterrupt):
            process.wait()
    finally:
        process.kill()
        process.wait()
        place.unlink(missing_ok=True)
