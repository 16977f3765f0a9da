"""``/props``: llama.cpp's description of the server."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from localspec import __version__
from localspec.core import settings_schema as schema
from localspec.core.setting_spec import Scope
from localspec.serve.bodies import JSONAnswer
from localspec.serve.service import Service


def routes(service: Service) -> list[BaseRoute]:
    """The endpoint."""
    return [Route("/props", Props(service).answer, methods=["GET"])]


class Props:
    """The endpoint."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, request: Request) -> Response:
        """Describe the server and the defaults of requests; names no file."""
        del request
        service, info = self._service, self._service.slot.info
        sampling = service.settings.sampling
        defaults: dict[str, Any] = {
            spec.name: getattr(sampling, spec.name) for spec in schema.of(Scope.SAMPLING)
        }
        return JSONAnswer(
            {
                "default_generation_settings": {
                    "n_ctx": info.context if info is not None else None,
                    "params": defaults | {"n_predict": service.settings.max_tokens or -1},
                },
                "total_slots": service.parallel,
                "model_alias": service.models.present,
                "modalities": {"vision": False, "audio": False},
                "build_info": f"localspec {__version__}",
                "is_sleeping": info is None,
                "localspec": {
                    "backend": info.backend if info is not None else None,
                    "drafters": list(info.drafters) if info is not None else [],
                    "strict": bool(info is not None and info.strict),
                },
            }
        )


__all__ = ["Props", "routes"]
