"""The ASGI application: `ROUTES` has the endpoints of all modules, `SHAPES` the bodies of errors at
paths that are not OpenAI's.

Paths are read as clients mean them: base addresses are written with and without a slash at the end,
and some clients add their path to either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localspec.core.errors import LocalspecError
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import GoneError, JSONAnswer
from localspec.serve.http.body_budget import BodyBudget
from localspec.serve.http.errors import OPENAI, ApiError, ErrorShape
from localspec.serve.http.guard import Guard
from localspec.serve.routes import (
    adapters,
    chat,
    completions,
    embeddings,
    infill,
    messages,
    models,
    native,
    ollama,
    ollama_answer,
    ollama_models,
    openapi,
    page,
    prometheus,
    props,
    responses,
    tokens,
)
from localspec.serve.routes.endpoint import Endpoints

_SLASHES = re.compile("//+")
_ABSOLUTE = re.compile("https?://([^/]*)", re.IGNORECASE)

ROUTES: tuple[Endpoints, ...] = (
    models.endpoints,
    chat.endpoints,
    completions.endpoints,
    embeddings.endpoints,
    infill.endpoints,
    tokens.endpoints,
    prometheus.endpoints,
    props.endpoints,
    responses.endpoints,
    messages.endpoints,
    native.endpoints,
    adapters.endpoints,
    ollama.endpoints,
    ollama_models.endpoints,
    page.endpoints,
)
"""The endpoints of each module that has some."""
SHAPES: Mapping[str, ErrorShape] = {
    **dict.fromkeys(completions.PATHS, completions.SHAPE),
    infill.PATH: infill.SHAPE,
    **dict.fromkeys(embeddings.PATHS, embeddings.SHAPE),
    **dict.fromkeys(embeddings.RERANK_PATHS, embeddings.RERANK_SHAPE),
    **dict.fromkeys(responses.PATHS, responses.SHAPE),
    messages.PATH: messages.ANTHROPIC,
    native.PREFIX: native.SHAPE,
    ollama.PREFIX: ollama_answer.OLLAMA,
}
"""Shapes of error bodies by the prefix of the path."""


def shape_at(path: str) -> ErrorShape:
    """The shape of errors at a path."""
    for prefix, shape in SHAPES.items():
        if path == prefix or path.startswith(f"{prefix}/"):
            return shape
    return OPENAI


class PlainPaths:
    """ASGI middleware that leaves out repeated slashes and one at the end, and the scheme and host
    that clients of proxies put before a path.
    """

    def __init__(self, app: ASGIApp, root: str = "") -> None:
        """``root`` is a path in front of all others, which is left out too where it is there."""
        self._app = app
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request at its plain path."""
        if scope["type"] == "http":
            whole = _ABSOLUTE.match(scope["path"])
            if whole is not None:  # its host takes the place of the header's (RFC 9112, 3.2.2)
                others = [header for header in scope["headers"] if header[0].lower() != b"host"]
                host = whole[1].encode("latin-1", "replace")
                scope["headers"] = [*others, (b"host", host)]
                scope["path"] = scope["path"][whole.end() :] or "/"
            path = plain(scope["path"])
            if self._root and (path + "/").startswith(self._root + "/"):
                path = path[len(self._root) :] or "/"
            scope["path"] = path
        await self._app(scope, receive, send)


def plain(path: str) -> str:
    """A path without needless slashes."""
    return _SLASHES.sub("/", path).rstrip("/") or "/"


def hint(path: str) -> str:
    """A hint at what is wrong with the base address of a client that asks for an unknown path;
    empty where nothing is known.
    """
    version, _, rest = path.removeprefix("/").partition("/")
    if version == "v1" and rest.split("/")[0] == "v1":
        return "; the base URL of this client should end before /v1"
    return "; /v1/completions continues a prompt" if path == "/completion" else ""


def build_app(service: Service) -> ASGIApp:
    """The application of a server."""
    app = Router(all_routes(service), redirect_slashes=False)
    limits = service.settings.limits
    limited = BodyBudget(app, limits.bodies_bytes, limits.answers_bytes)
    guard = Guard(Boundary(limited, service, app.routes), service.settings, shape_at)
    return PlainPaths(guard, service.settings.root_path)


def all_routes(service: Service) -> list[BaseRoute]:
    """The routes of a server, and the one that describes them."""
    routes = [route for endpoints in ROUTES for route in endpoints.routes(service)]
    return [*routes, *openapi.routes(service, routes)]


class Boundary:
    """ASGI middleware that makes answers of errors, without tracebacks or paths of files."""

    def __init__(self, app: ASGIApp, service: Service, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        started = False

        async def watching(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        scope["app"] = self  # Starlette's routes raise where there is one, and answer otherwise
        error: ApiError
        try:
            await self._app(scope, receive, watching)
        except GoneError:
            return
        except ApiError as raised:
            error = raised
        except HTTPException as raised:
            error = _of_route(scope, raised, self._routes)
        except LocalspecError as raised:
            error = self._service.refused(raised)
        except Exception as raised:  # noqa: BLE001 - a defect of ours: the client gets a plain 500
            self._service.reporter.defect(raised)
            error = ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error of the server")
        else:
            return
        if not started:
            body = shape_at(scope["path"]).body(error)
            answer = JSONAnswer(body, error.status, error.headers)
            del error  # it knows this frame, and what the request held would stay with both
            await answer(scope, receive, send)


def _of_route(scope: Scope, error: HTTPException, routes: Sequence[BaseRoute]) -> ApiError:
    """The answer where no route takes the request. Starlette's names the methods of the first route
    of a path alone.
    """
    path = scope["path"][:200]
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            return ApiError(error.status_code, f"there is nothing at {path}{hint(path)}")
        case HTTPStatus.METHOD_NOT_ALLOWED:
            said = f"{scope['method']} is not possible at {path}"
            possible = {
                method
                for route in routes
                if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE
                for method in route.methods or ()
            }
            return ApiError(error.status_code, said, headers={"Allow": ", ".join(sorted(possible))})
    return ApiError(error.status_code, "the request cannot be answered")
