"""``/v1/models``, ``/health`` and ``/version``."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from localspec import __version__
from localspec.core.events import ModelInfo
from localspec.serve.backend.model_names import ListedModel
from localspec.serve.backend.public_name import public_name, spelt
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer
from localspec.serve.http.errors import RETRY_SECONDS, ApiError, load_failure, of_engine
from localspec.serve.routes.answer_types import Model, Models
from localspec.serve.routes.endpoint import Endpoints

_ANTHROPIC = "anthropic-version"
"""Header that clients of Anthropic's API send."""


endpoints = Endpoints()


@endpoints.get("/v1/models", "/models", answer=Models)
async def models(service: Service, request: Request) -> Response:
    """The models that requests may name.

    In the shape of the API that the client speaks.
    """
    listed = await service.models.listed()
    if _ANTHROPIC in request.headers:
        return JSONAnswer(
            {
                "data": [_anthropic(service, one) for one in listed],
                "has_more": False,
                "first_id": listed[0].name,
                "last_id": listed[-1].name,
            }
        )
    data = [*(_entry(service, one) for one in listed), *_of_texts(service)]
    return JSONAnswer({"object": "list", "data": data})


@endpoints.get("/v1/models/{name:path}", answer=Model)
async def model(service: Service, request: Request) -> Response:
    """One model."""
    name = request.path_params["name"]
    names, listed = spelt(name), await service.models.listed()
    one = next((one for spelling in names for one in listed if one.name == spelling), None)
    if one is None:
        for found in _of_texts(service):
            if found["id"] in names:
                return JSONAnswer(found)
        options = (await service.models.wanted(name)).options or service.slots.options
        meant = public_name(options.model)
        one = ListedModel(meant, options, loaded=meant in service.slots.loaded)
    entry = _anthropic if _ANTHROPIC in request.headers else _entry
    return JSONAnswer(entry(service, one))


@endpoints.get("/health", "/v1/health", "/readyz")
async def health(service: Service, request: Request) -> Response:
    """Whether a model is ready."""
    del request
    slots = service.slots
    if slots.ready:
        return JSONAnswer({"status": "ok"})
    if slots.loading:
        raise ApiError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the model is being loaded",
            code="loading",
            retry_after=RETRY_SECONDS,
        )
    if slots.error is not None:
        raise of_engine(load_failure(slots.error))
    return JSONAnswer({"status": "ok", "loaded": False})


@endpoints.get("/livez")
async def alive(service: Service, request: Request) -> Response:
    """Whether the server answers."""
    del service, request
    return JSONAnswer({"status": "ok"})


@endpoints.get("/version")
async def version(service: Service, request: Request) -> Response:
    """The version of localspec."""
    del service, request
    return JSONAnswer({"version": __version__})


def _anthropic(service: Service, model: ListedModel) -> dict[str, Any]:
    created = datetime.fromtimestamp(int(service.started), UTC)
    entry: dict[str, Any] = {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": created.isoformat().replace("+00:00", "Z"),
    }
    info = _info(service, model)
    if model.loaded and info is not None:
        most = service.settings.max_tokens or info.context
        entry |= {"max_input_tokens": info.context, "max_tokens": min(most, info.context)}
    return entry


def _info(service: Service, model: ListedModel) -> ModelInfo | None:
    """The loaded pair that answers requests for a model; an alias means the first one."""
    slots = service.slots
    return slots.loaded.get(model.parent or model.name) or slots.info_of(slots.first)


def _of_texts(service: Service) -> list[dict[str, Any]]:
    """The embedding model and the reranker, which write nothing."""
    return [
        {
            "id": public_name(process.model),
            "object": "model",
            "created": int(service.started),
            "owned_by": "localspec",
            "localspec": {"loaded": process.info is not None, "task": task},
        }
        for task, process in service.embeddings.processes.items()
    ]


def _entry(service: Service, model: ListedModel) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": model.name,
        "object": "model",
        "created": int(service.started),
        "owned_by": "localspec",
    }
    if model.parent:  # vLLM's names
        entry |= {"root": model.name, "parent": model.parent}
    info = _info(service, model)
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
