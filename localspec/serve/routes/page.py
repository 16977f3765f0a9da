"""``GET /``: programs look there whether the server is up."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from localspec.serve.backend.service import Service
from localspec.serve.routes.endpoint import get


def routes(service: Service) -> list[BaseRoute]:
    """The page."""
    del service
    return get("/", running, "Whether the server answers", None)


async def running(request: Request) -> Response:
    """Say so."""
    del request
    return PlainTextResponse("localspec is running\n")
