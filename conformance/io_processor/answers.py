# SPDX-License-Identifier: Apache-2.0
"""What a client gets for a request, as data that can be compared."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus
from typing import Any

import attrs
from starlette.exceptions import HTTPException

from conformance.io_processor.complaints import Complaint, complaints
from conformance.watching.comparison import shortened
from conformance.watching.interruption import OutOfTime
from conformance.watching.raised import said


class Kind(StrEnum):
    """How a request ended."""

    ANSWERED = "answered"
    REFUSED = "refused"  #: the client's error, HTTP status 400 to 499
    FAILED = "failed"  #: the server's error, HTTP status 500 and more
    CANCELLED = "cancelled"  #: the client went away
    UNFINISHED = "unfinished"  #: it still waits when everything has been delivered

    @classmethod
    def of_status(cls, status: int) -> Kind:
        """Return how a request ended that was answered with the status of an error."""
        refused = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
        return cls.REFUSED if refused else cls.FAILED


@attrs.frozen
class Answer:
    """How one request ended, and with what."""

    kind: Kind
    data: Any = None  #: what the plugin answered, as JSON has it, or as it is offline
    status: int = 200
    request_id: str | None = None  #: of which request a response says that it is
    error: str = ""  #: type and message of what was raised
    call: str = ""  #: the call into the plugin that raised it; empty where vLLM did
    #: Whether it may have been raised because an output was made up, which proves nothing.
    guessed: bool = False
    #: Whether nothing of the plugin was running when its time was over.
    slow: bool = False
    #: Each cache salt with which a prompt of it came to the engine.
    salts: tuple[str, ...] = ()
    #: What a model of the plugin says of the data.
    complaints: tuple[Complaint, ...] = ()

    @property
    def late(self) -> bool:
        """Whether no answer came before the client gave up, or none at all."""
        return self.kind is Kind.FAILED and self.status == 0

    def describe(self, *, served: bool = True) -> str:
        """Say how the request ended, for a message; offline there is no HTTP."""
        if self.kind is Kind.ANSWERED:
            return f"was answered {shortened(self.data)}"
        if self.kind in (Kind.REFUSED, Kind.FAILED):
            where = f" in {self.call}" if self.call else ""
            if not served:
                return f"raised {self.error}{where}"
            return f"ended with HTTP {self.status}{where} ({self.error})"
        return f"was {self.kind.value}"


def status_of(error: BaseException) -> int:
    """Return the HTTP status that vLLM answers an exception with."""
    if not isinstance(error, Exception):
        return 500
    if isinstance(error, HTTPException):  # the server's own, which has a handler of its own
        return int(error.status_code)
    try:
        from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
    except ImportError:  # releases that had it elsewhere map the same exceptions
        return 400 if isinstance(error, ValueError | TypeError | OverflowError) else 500
    return int(create_error_response(error).error.code)


def not_finite(error: BaseException) -> bool:
    """Tell whether JSON could not be written because a number is none, or infinite."""
    return isinstance(error, ValueError) and "Out of range float values" in str(error)


def of_error(
    error: BaseException, call: str, *, guessed: bool = False, path: str | None = None
) -> Answer:
    """Return the answer that an exception becomes; ``path`` is the file of the plugin's class."""
    status = status_of(error)
    return Answer(
        Kind.of_status(status),
        None,
        status,
        error=said(error, path),
        call=call,
        guessed=guessed,
        slow=isinstance(error, OutOfTime),
        complaints=complaints(error),
    )
