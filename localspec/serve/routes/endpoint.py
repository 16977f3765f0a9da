"""Endpoints: each says what it answers, and from that come its route, the reading of its requests
and its part of ``/openapi.json``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import elsewhere, read_body_as
from localspec.serve.http.body_budget import Caller, caller_of
from localspec.serve.http.typed import Body, read
from localspec.serve.routes import answers

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
        return await elsewhere(self.size, work)

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
    error: Any = answers.Error
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


def get(
    service: Service,
    paths: str | Iterable[str],
    handler: Callable[[Service, Request], Awaitable[Response]],
    summary: str,
    answer: Any = answers.Anything,
) -> list[BaseRoute]:
    """An endpoint without a body. Of several paths, the first is described."""
    return _routes(paths, partial(handler, service), Operation("GET", summary, answer=answer))


def post(
    service: Service,
    paths: str | Iterable[str],
    handler: Callable[[Received[B]], Awaitable[Response]],
    summary: str,
    *,
    body: type[B],
    method: str = "POST",
    **described: Any,
) -> list[BaseRoute]:
    """An endpoint with a body, which ``handler`` gets as a ``body``; ``described`` are further
    fields of `Operation`. Of several paths, the first is described.
    """

    async def answer(request: Request) -> Response:
        def received_of(given: dict[str, Any], size: int) -> tuple[Received[B], list[str]]:
            found = read(body, body.completed(given))
            found.refuse_foreign(given)
            return Received(service, request, found, given, size), found.ignored(given)

        received, unknown = await read_body_as(request, service.settings.limits, received_of)
        service.tell_unknown(path, unknown)
        return await handler(received)

    path = paths if isinstance(paths, str) else next(iter(paths))
    return _routes(paths, answer, Operation(method, summary, body, **described))


def post_unread(
    service: Service,
    paths: str | Iterable[str],
    handler: Callable[[Service, Request], Awaitable[Response]],
    summary: str,
    *,
    body: Any = answers.Anything,
    **described: Any,
) -> list[BaseRoute]:
    """An endpoint that reads its body itself, or not at all; otherwise as `post`."""
    return _routes(paths, partial(handler, service), Operation("POST", summary, body, **described))


def _routes(
    paths: str | Iterable[str],
    handler: Callable[[Request], Awaitable[Response]],
    operation: Operation,
) -> list[BaseRoute]:
    first, *others = (paths,) if isinstance(paths, str) else paths
    aliases = (Route(path, handler, methods=[operation.method]) for path in others)
    return [Endpoint(first, handler, operation), *aliases]
