"""``/props`` and ``/slots``: llama.cpp's descriptions of the server."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from localspec import __version__
from localspec.core import settings_schema as schema
from localspec.core.events import ModelInfo
from localspec.core.setting_spec import Scope
from localspec.serve.backend.records import ReplyRecord
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer
from localspec.serve.http.errors import RETRY_SECONDS, ApiError
from localspec.serve.routes.answer_types import Anything
from localspec.serve.routes.endpoint import Endpoints

endpoints = Endpoints()


@endpoints.get("/props")
async def props(service: Service, request: Request) -> Response:
    """The server and its defaults, as llama.cpp has them.

    No file is named.
    """
    del request
    info, sampling = service.slots.info, service.settings.sampling
    defaults: dict[str, Any] = {
        spec.name: getattr(sampling, spec.name) for spec in schema.of(Scope.SAMPLING)
    }
    return JSONAnswer(
        {
            "default_generation_settings": {
                "n_ctx": info.context if info is not None else None,
                "params": defaults | {"n_predict": service.settings.max_tokens or -1},
            },
            "total_slots": service.queue.parallel,
            "model_alias": service.models.present,
            "modalities": {
                "vision": info is not None and info.sees,
                "audio": info is not None and info.hears,
            },
            "build_info": f"localspec {__version__}",
            "is_sleeping": info is None and not service.slots.loading,
            "localspec": {
                "backend": info.backend if info is not None else None,
                "drafters": list(info.drafters) if info is not None else [],
                "strict": bool(info is not None and info.strict),
            },
        }
    )


@endpoints.get("/slots", answer=list[Anything])
async def slots(service: Service, request: Request) -> Response:
    """The replies that run, as llama.cpp has them.

    One object for each that can run at a time, none while no model is loaded; no text and no caller
    is told, nor which of several models it is.

    Raises:
        ApiError: 503, none is free, and the query has ``fail_on_no_slot``.
    """
    found = _slots([*service.slots.loaded.values()], service.queue.replies)
    if "fail_on_no_slot" in request.query_params and all(s["is_processing"] for s in found):
        raise ApiError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "no slot is free",
            code="no_slot",
            retry_after=RETRY_SECONDS,
        )
    return JSONAnswer(found)


def _slots(loaded: Sequence[ModelInfo], running: Sequence[ReplyRecord]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, info in enumerate(one for one in loaded for _ in range(one.parallel)):
        reply = running[number] if number < len(running) else None
        found.append(
            {
                "id": number,
                "n_ctx": info.context,
                "speculative": info.speculation.state != "off",
                "is_processing": reply is not None,
                "n_past": reply.context_used if reply is not None else 0,
                "n_decoded": reply.emitted if reply is not None else 0,
            }
        )
    return found
