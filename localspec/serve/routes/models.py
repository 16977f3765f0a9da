"""``/v1/models``, ``/health`` and ``/version``."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from localspec import __version__
from localspec.core.events import ModelInfo
from localspec.serve.backend.model_names import ListedModel
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer
from localspec.serve.http.errors import RETRY_SECONDS, ApiError, NotLoadedError, of_engine
from localspec.serve.routes.answers import Model, Models
from localspec.serve.routes.endpoint import get

_ANTHROPIC = "anthropic-version"
"""Header that clients of Anthropic's API send."""


def routes(service: Service) -> list[BaseRoute]:
    """Which models there are, and whether the server is ready."""
    about = About(service)
    return [
        *get(("/v1/models", "/models"), about.models, "The models that requests may name", Models),
        *get("/v1/models/{name:path}", about.model, "One model", Model),
        *get(("/health", "/v1/health", "/readyz"), about.health, "Whether the model is ready"),
        *get("/livez", about.alive, "Whether the server answers"),
        *get("/version", about.version, "The version of localspec"),
    ]


class About:
    """The endpoints."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def models(self, request: Request) -> Response:
        """List the models, in the shape of the API that the client speaks."""
        listed = await self._service.models.listed()
        if _ANTHROPIC in request.headers:
            return JSONAnswer(
                {
                    "data": [self._anthropic(model) for model in listed],
                    "has_more": False,
                    "first_id": listed[0].name,
                    "last_id": listed[-1].name,
                }
            )
        data = [*map(self._entry, listed), *self._of_texts()]
        return JSONAnswer({"object": "list", "data": data})

    async def model(self, request: Request) -> Response:
        """Describe one model."""
        name = request.path_params["name"]
        for model in await self._service.models.listed():
            if model.name == name:
                entry = self._anthropic if _ANTHROPIC in request.headers else self._entry
                return JSONAnswer(entry(model))
        for found in self._of_texts():
            if found["id"] == name:
                return JSONAnswer(found)
        await self._service.models.options(name)
        raise ApiError(HTTPStatus.NOT_FOUND, "there is no such model", code="model_not_found")

    async def health(self, request: Request) -> Response:
        """Tell whether the engine is ready."""
        del request
        slot = self._service.slot
        if slot.info is not None:
            return JSONAnswer({"status": "ok"})
        if slot.loading:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the model is being loaded",
                code="loading",
                retry_after=RETRY_SECONDS,
            )
        if slot.error is not None:
            raise of_engine(NotLoadedError(slot.error))
        return JSONAnswer({"status": "ok", "loaded": False})

    async def alive(self, request: Request) -> Response:
        """Tell that the server answers, whether or not a model is loaded."""
        del request
        return JSONAnswer({"status": "ok"})

    async def version(self, request: Request) -> Response:
        """Tell the version, as vLLM does."""
        del request
        return JSONAnswer({"version": __version__})

    def _anthropic(self, model: ListedModel) -> dict[str, Any]:
        created = datetime.fromtimestamp(int(self._service.started), UTC)
        entry: dict[str, Any] = {
            "type": "model",
            "id": model.name,
            "display_name": model.name,
            "created_at": created.isoformat().replace("+00:00", "Z"),
        }
        info = self._info(model)
        if model.loaded and info is not None:
            most = self._service.settings.max_tokens or info.context
            entry |= {"max_input_tokens": info.context, "max_tokens": min(most, info.context)}
        return entry

    def _info(self, model: ListedModel) -> ModelInfo | None:
        """The loaded pair that answers requests for a model."""
        slots = self._service.slot
        return slots.loaded.get(model.parent or model.name, slots.info)

    def _of_texts(self) -> list[dict[str, Any]]:
        """The embedding model and the reranker, which write nothing."""
        return [
            {
                "id": name,
                "object": "model",
                "created": int(self._service.started),
                "owned_by": "localspec",
                "localspec": {"loaded": True, "task": task},
            }
            for name, task in self._service.embeddings.tasks.items()
        ]

    def _entry(self, model: ListedModel) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "id": model.name,
            "object": "model",
            "created": int(self._service.started),
            "owned_by": "localspec",
        }
        if model.parent:  # vLLM's names
            entry |= {"root": model.name, "parent": model.parent}
        info = self._info(model)
        if model.loaded and info is not None:
            entry["max_model_len"] = info.context  # vLLM's name
            entry["meta"] = {"n_ctx": info.context, "size": info.target_bytes}  # llama.cpp's
        own: dict[str, Any] = {"loaded": model.loaded}
        if model.about:
            own["about"] = model.about
        if model.loaded and info is not None:
            own |= {
                "backend": info.backend,
                "sees": info.sees,
                "hears": info.hears,
                "drafters": list(info.drafters),
                "parallel": info.parallel,
                "strict": bool(info.strict),
                "speculation": {"state": info.speculation.state, "reason": info.speculation.reason},
            }
        return entry | {"localspec": own}
