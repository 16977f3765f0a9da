"""Errors as HTTP answers: status, and a body in the shape that clients of the path expect, which is
OpenAI's for most.

Messages are ours or those of `localspec.core.errors`. Paths of files stay in the server's own log:
only errors whose text is about the request are shown to clients, `without_folders`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

from localspec.core.errors import (
    RAISE_CTX,
    ContextError,
    DecodeError,
    DefectError,
    EngineError,
    Interrupted,
    LocalspecError,
    OutOfMemoryError,
    QueueFullError,
    ThinkingSwitchError,
    UsageError,
)
from localspec.serve.http.sse import sse

_FOLDERS = re.compile(
    r"(?<=')~?/(?:[^'/]++/)*+(?=[^'/]+')"
    r"|(?<![^\s'\"`(\[=,:])~?/(?:[^\s'\"`,/]++/(?=[^\s'\"`,/]))*+(?=[^\s'\"`,/])"
)
"""The folders of a path from the root on, or from somebody's own folder; in quotes with blanks.
Nothing of it is tried again, which takes memory for each folder.
"""
_OF_A_GRAMMAR = re.compile(
    r"th(?:e|is|ese) (?:[\w-]+ ){0,3}?(?:grammar|schema|expression|choices|tools)\b", re.IGNORECASE
)
"""Begins an error that repeats what a grammar has between slashes."""
RETRY_SECONDS = 2
"""Value of Retry-After where nothing better is known."""


class PausedError(EngineError):
    """The engine ended several times in a row, and is not started again for some seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__("the engine keeps stopping; it is started again after a pause")
        self.seconds = seconds


class NotLoadedError(LocalspecError):
    """A model cannot be loaded, or a worker that it needs is not there."""

    def __init__(self, reason: LocalspecError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def load_failure(error: LocalspecError) -> LocalspecError:
    """What a request is told whose model could not be loaded."""
    told = isinstance(error, EngineError | Interrupted | OutOfMemoryError)
    return error if told else NotLoadedError(error)


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "",
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        of_prompt: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """``kind`` is the ``type`` of OpenAI's error object; by default that of the status.
        ``of_prompt``: it is about the prompt, whose field has another name on each route.
        """
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or KINDS.get(status, "server_error")
        self.param = param
        self.code = code
        self.retry_after = retry_after
        self.of_prompt = of_prompt
        self._headers = dict(headers or {})

    @property
    def headers(self) -> dict[str, str]:
        """Headers besides those of any JSON answer."""
        headers = dict(self._headers)
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, round(self.retry_after)))
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


KINDS: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "invalid_request_error",
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.METHOD_NOT_ALLOWED: "invalid_request_error",
    HTTPStatus.REQUEST_TIMEOUT: "invalid_request_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "invalid_request_error",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "invalid_request_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable_error",
}
"""OpenAI's ``type`` of an error, by status."""


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """An error for an invalid request."""
    return ApiError(HTTPStatus.BAD_REQUEST, message, param=param, code=code)


def no_such_model(message: str) -> ApiError:
    """The error for a name that no model of the server has."""
    return ApiError(
        HTTPStatus.NOT_FOUND,
        message,
        kind="invalid_request_error",
        param="model",
        code="model_not_found",
    )


def too_long(message: str) -> ApiError:
    """The error for a prompt that the context has no room for."""
    return ApiError(HTTPStatus.BAD_REQUEST, message, code="context_length_exceeded", of_prompt=True)


def too_busy(message: str) -> ApiError:
    """The error where others have to end first."""
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE, message, code="too_busy", retry_after=RETRY_SECONDS
    )


def stopping() -> ApiError:
    """The error that ends a reply when the server stops before it is whole."""
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the server is stopping, and ended this reply before it was whole",
        code="server_stopping",
        retry_after=RETRY_SECONDS,
    )


def without_folders(error: LocalspecError | str) -> str:
    """The text of an error or notice as clients are told it, with the names of files alone; one
    about a grammar names no files.
    """
    text = str(error)
    return text if _OF_A_GRAMMAR.match(text) else _FOLDERS.sub("", text)


def of_engine(error: LocalspecError) -> ApiError:
    """The answer to a request that failed in the engine, or before it reached the engine."""
    if isinstance(error, ContextError):
        said = without_folders(error).replace(RAISE_CTX, "start the server with a larger --ctx")
        return too_long(said)
    if isinstance(error, UsageError):
        code = error.code if isinstance(error, ThinkingSwitchError) else None
        return bad_request(without_folders(error), code=code)
    if isinstance(error, PausedError):
        seconds = math.ceil(error.seconds)
        return ApiError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{error}; try again in {seconds} seconds",
            code="engine_stopped",
            retry_after=seconds,
        )
    for kinds, status, message, code in _FAILURES:
        if isinstance(error, kinds):
            again = RETRY_SECONDS if status != HTTPStatus.INTERNAL_SERVER_ERROR else None
            return ApiError(status, message or str(error), code=code, retry_after=again)
    return ApiError(
        HTTPStatus.INTERNAL_SERVER_ERROR, "the request failed; the server's log has the reason"
    )


_FAILURES: tuple[tuple[type | tuple[type, ...], int, str, str], ...] = (
    (QueueFullError, HTTPStatus.TOO_MANY_REQUESTS, "", "queue_full"),
    (
        NotLoadedError,
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the model cannot be loaded; the server's log has the reason",
        "not_loaded",
    ),
    (
        DefectError,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "the engine failed at this request; the server's log has the reason",
        "request_failed",
    ),
    (
        (EngineError, Interrupted),
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the engine stopped, and is started again; try again",
        "engine_stopped",
    ),
    (
        OutOfMemoryError,
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the model does not fit into the memory that is free",
        "out_of_memory",
    ),
    (
        DecodeError,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "the engine could not decode this reply; the server's log has the reason",
        "decode_failed",
    ),
)
"""Status, message and code by class of errors. There is a message where their own text may name
files.
"""


class ErrorShape(Protocol):
    """Makes bodies of errors."""

    def body(self, error: ApiError) -> dict[str, Any]:
        """The JSON of an answer that is an error."""
        ...

    def event(self, error: ApiError) -> bytes:
        """The end of a stream that fails after it has begun."""
        ...


class OpenAIShape:
    """``{"error": {"message", "type", "param", "code"}}``."""

    def __init__(self, prompt: str | None = "messages") -> None:
        """``prompt`` is the name of the field with the prompt, if it has one."""
        self._prompt = prompt

    def body(self, error: ApiError) -> dict[str, Any]:
        """The JSON of an answer that is an error."""
        return {
            "error": {
                "message": error.message,
                "type": error.kind,
                "param": self._prompt if error.of_prompt else error.param,
                "code": error.code,
            }
        }

    def event(self, error: ApiError) -> bytes:
        """The end of a stream that fails after it has begun."""
        return sse(self.body(error))


OPENAI = OpenAIShape()
