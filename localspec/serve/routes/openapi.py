"""``/openapi.json``: the description of this server, for people, for generators of clients and for
fuzzers. It is made of the endpoints, and of the types that read their requests.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from localspec import __version__
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer
from localspec.serve.http.typed import Fields
from localspec.serve.routes.answer_types import Event
from localspec.serve.routes.endpoint import Endpoint, Endpoints, Operation

PATH = "/openapi.json"
_FAILURES = {
    "400": "the request is invalid",
    "401": "no API key, or a wrong one, where one is needed",
    "403": "the Host or Origin is not allowed",
    "404": "there is no such model",
    "409": "the model is loaded, and is not removed",
    "408": "the body did not arrive in time",
    "413": "the body, or the answer, is too large",
    "415": "the body is compressed",
    "429": "too many requests wait",
    "503": "the engine is loading or was stopped",
}


def routes(service: Service, others: Iterable[BaseRoute]) -> list[BaseRoute]:
    """The endpoint, which describes ``others`` and itself."""
    endpoints, described = Endpoints(), [*others]

    @functools.cache
    def page() -> dict[str, Any]:
        """The description, which is the same for every model and address."""
        root = service.settings.root_path
        return description(described) | ({"servers": [{"url": root}]} if root else {})

    @endpoints.get(PATH)
    async def openapi(_: Service, request: Request) -> Response:
        """This description."""
        del request
        return JSONAnswer(page())

    own = endpoints.routes(service)
    described += own
    return own


def description(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """The description of the endpoints among ``routes``."""
    endpoints = [route for route in routes if isinstance(route, Endpoint)]
    schemas, paths = _Schemas(endpoints), dict[str, dict[str, Any]]()
    for one in endpoints:
        found = {one.operation.method.lower(): _operation(one, schemas)}
        paths.setdefault(one.path_format, {}).update(found)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "localspec",
            "version": __version__,
            "description": "Exact speculative decoding; OpenAI's, Anthropic's and Ollama's APIs.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


class _Schemas:
    """The JSON schemas of all types of some endpoints."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        operations = [endpoint.operation for endpoint in endpoints]
        types = [kind for one in operations for kind in (one.body, one.answer, one.error)]
        types += [part for one in operations for part in getattr(one.body, "parts", ())]
        types = [*{repr(kind): kind for kind in (*types, Event) if kind is not None}.values()]
        schemas, self.components = msgspec.json.schema_components(
            types, ref_template="#/components/schemas/{name}"
        )
        self._by_type = dict(zip(map(repr, types), schemas, strict=True))
        for kind in _below(Fields):
            if kind.__name__ in self.components:
                _add(self.components[kind.__name__], kind.also)
                own = self.components[kind.__name__].setdefault("properties", {})
                own |= {name: one.schema for name, one in kind.foreign.items() if name not in own}
                parts = [self.of(part) for part in getattr(kind, "parts", ())]
                self.components[kind.__name__] |= {"allOf": parts} if parts else {}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type; that of a text for None."""
        return {"type": "string"} if kind is None else self._by_type[repr(kind)]


def _add(schema: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(schema.get(key), dict):
            _add(schema[key], value)
        else:
            schema[key] = value


def _below(kind: type[Fields]) -> Iterator[type[Fields]]:
    for below in kind.__subclasses__():
        yield below
        yield from _below(below)


def _operation(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    operation = endpoint.operation
    failure = {"application/json": {"schema": schemas.of(operation.error)}}
    found: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": "_".join(
            part.strip("{}.") for part in endpoint.path_format.split("/") if part
        ),
        "responses": {
            "200": _answer(operation, schemas),
            **{s: {"description": why, "content": failure} for s, why in _FAILURES.items()},
        },
    }
    if endpoint.param_convertors:
        found["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in endpoint.param_convertors
        ]
    if operation.body is not None:
        content = {"schema": schemas.of(operation.body)}
        if operation.example:
            content["example"] = operation.example
        found["requestBody"] = {"required": True, "content": {"application/json": content}}
    return found


def _answer(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    text = operation.answer is None and operation.body is None
    kind = "text/plain" if text else operation.media_type
    content = {kind: {"schema": schemas.of(operation.answer)}}
    if operation.stream:
        events = operation.stream_type == "text/event-stream"
        piece = schemas.of(Event if events else operation.answer)
        content[operation.stream_type] = {"schema": piece}
    return {"description": "the answer", "content": content}
