"""Endpoints: each says what it answers, and from that come its route, the reading of its requests
and its part of ``/openapi.json``.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import elsewhere, read_body_as
from localspec.serve.http.body_budget import Caller, caller_of
from localspec.serve.http.typed import Body, read
from localspec.serve.routes import answer_types

B = TypeVar("B", bound=Body)
P = TypeVar("P", bound=Body)
T = TypeVar("T")


class Received(Struct, Generic[B], frozen=True):
    """A request that was read."""

    service: Service
    http: Request
    body: B
    given: dict[str, Any]
    """The body as it came, for what is passed on as it is: tools and JSON schemas."""

    size: int
    """Bytes of the body."""

    @property
    def caller(self) -> Caller:
        """Who sent it."""
        return caller_of(self.http.scope)

    async def apart(self, work: Callable[[], T]) -> T:
        """What ``work`` makes of the request: in a thread, where the body is large, so it must
        touch nothing that belongs to the loop.

        Raises:
            Exception: what ``work`` raises.
        """
        return await elsewhere(self.caller, self.size, work)

    def part(self, kind: type[P]) -> P:
        """The body, read as one of its `Body.parts`.

        Raises:
            ApiError: it is invalid.
        """
        return read(kind, kind.completed(self.given))


class Operation(Struct, frozen=True):
    """What the description says of an endpoint."""

    method: str
    summary: str
    body: Any = None
    """Type of the body; None: there is none."""
    answer: Any = None
    """Type of the answer; None: it is a text."""
    stream: bool = False
    """Whether it may also come in pieces."""
    stream_type: str = "text/event-stream"
    """Media type of those pieces: events, or lines of JSON."""
    error: Any = answer_types.Error
    example: dict[str, Any] = {}
    """A body with most of its fields."""
    media_type: str = "application/json"
    """Of the answer."""


class Endpoint(Route):
    """A route with its description."""

    def __init__(
        self, path: str, handler: Callable[[Request], Awaitable[Response]], operation: Operation
    ) -> None:
        super().__init__(path, handler, methods=[operation.method])
        self.operation = operation


Unread = Callable[[Service, Request], Awaitable[Response]]
"""Answers a request whose body is not read yet, if it has one."""
_Answer = Callable[[Request], Awaitable[Response]]
_U = TypeVar("_U", bound=Unread)
_R = TypeVar("_R", bound=Callable[[Received[Any]], Awaitable[Response]])


class Endpoints:
    """The endpoints of a module: functions that answer. The first line of their docstrings is the
    summary in the description, which has the first of several paths.
    """

    def __init__(self) -> None:
        self._found: list[tuple[tuple[str, ...], Callable[[Service], _Answer], Operation]] = []

    def get(self, *paths: str, answer: Any = answer_types.Anything) -> Callable[[_U], _U]:
        """An endpoint without a body."""
        return self._unread(paths, method="GET", answer=answer)

    def post(self, *paths: str, method: str = "POST", **described: Any) -> Callable[[_R], _R]:
        """An endpoint with a body of the type in the function's annotation; ``described`` are
        further fields of `Operation`.
        """

        def add(handler: _R) -> _R:
            received, _ = get_type_hints(handler).values()
            (body,) = get_args(received)
            bound = partial(_reading, paths[0], body, handler)
            self._found.append((paths, bound, _operation(handler, method, body=body, **described)))
            return handler

        return add

    def post_unread(
        self, *paths: str, body: Any = answer_types.Anything, **described: Any
    ) -> Callable[[_U], _U]:
        """An endpoint that reads its body itself, or not at all; otherwise as `post`."""
        return self._unread(paths, method="POST", body=body, **described)

    def _unread(self, paths: tuple[str, ...], **described: Any) -> Callable[[_U], _U]:
        def add(handler: _U) -> _U:
            def bound(service: Service) -> _Answer:
                return partial(handler, service)

            self._found.append((paths, bound, _operation(handler, **described)))
            return handler

        return add

    def routes(self, service: Service) -> list[BaseRoute]:
        """The routes of a server."""
        found: list[BaseRoute] = []
        for (first, *others), bound, operation in self._found:
            answer = bound(service)
            found.append(Endpoint(first, answer, operation))
            found += [Route(path, answer, methods=[operation.method]) for path in others]
        return found


def _operation(handler: Callable[..., Any], method: str, **described: Any) -> Operation:
    summary = (inspect.getdoc(handler) or "").partition("\n")[0].removesuffix(".")
    return Operation(method, summary, **described)


def _reading(
    path: str,
    body: type[B],
    handler: Callable[[Received[B]], Awaitable[Response]],
    service: Service,
) -> _Answer:
    """Reads the bodies that ``handler`` answers."""

    async def answer(request: Request) -> Response:
        def received_of(given: dict[str, Any], size: int) -> tuple[Received[B], list[str]]:
            found = read(body, body.completed(given))
            found.refuse_foreign(given)
            return Received(service, request, found, given, size), found.ignored(given)

        received, unknown = await read_body_as(request, service.settings.limits, received_of)
        service.tell_unknown(path, unknown)
        return await handler(received)

    return answer
