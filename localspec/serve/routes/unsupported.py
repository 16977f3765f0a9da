"""Endpoints that clients ask for and this server does not have, refused with the reason."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from localspec.serve.backend.service import Service
from localspec.serve.http.errors import ApiError

_EMBEDDINGS = ("/v1/embeddings", "/embeddings")


def routes(service: Service) -> list[BaseRoute]:
    """The paths."""
    del service
    return [Route(path, embeddings, methods=["POST"]) for path in _EMBEDDINGS]


async def embeddings(request: Request) -> Response:
    """Refuse. Status 404 rather than 501, which clients would repeat.

    Raises:
        ApiError: always.
    """
    del request
    raise ApiError(
        HTTPStatus.NOT_FOUND,
        "embeddings are not supported: localspec serve generates text only; use a server for "
        "embedding models, for example llama-server --embeddings",
        kind="invalid_request_error",
        code="not_supported",
    )


__all__ = ["routes"]
