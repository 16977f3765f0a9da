"""Endpoints that clients ask for and this server does not have, refused with the reason."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from localspec.serve.backend.service import Service
from localspec.serve.http.errors import ApiError
from localspec.serve.routes.answers import Anything
from localspec.serve.routes.endpoint import post_untyped

_EMBEDDINGS = ("/v1/embeddings", "/embeddings")


def routes(service: Service) -> list[BaseRoute]:
    """The paths."""
    del service
    said = "Refused: this server has no embeddings"
    return post_untyped(_EMBEDDINGS, embeddings, said, answer=Anything)


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
