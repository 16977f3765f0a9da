"""LoRA adapters: ``/lora-adapters`` in llama-server's shape, and vLLM's ``/v1/load_lora_adapter``
and ``/v1/unload_lora_adapter``.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from localspec.core.adapter_list import AdapterUse
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, elsewhere, read_body, while_connected
from localspec.serve.http.body_budget import caller_of
from localspec.serve.http.errors import bad_request
from localspec.serve.http.json_body import parse_value
from localspec.serve.http.typed import read
from localspec.serve.requests.adapters import (
    AdapterScale,
    LoadAdapterBody,
    ScalesBody,
    UnloadAdapterBody,
)
from localspec.serve.routes.answer_types import AdapterEntry, Success
from localspec.serve.routes.endpoint import Endpoints, Received

PATH = "/lora-adapters"


endpoints = Endpoints()


@endpoints.get(PATH, answer=list[AdapterEntry])
async def listed(service: Service, request: Request) -> Response:
    """The LoRA adapters and their usual scales.

    Files are told by name only.
    """
    del request
    found: list[dict[str, Any]] = [
        {
            "id": one.id,
            "path": one.path.name,
            "scale": one.scale,
            "task_name": "",
            "prompt_prefix": "",
            "localspec": {"name": one.name},
        }
        for one in service.adapters.listed()
    ]
    return JSONAnswer(found)


@endpoints.post_unread(PATH, body=list[AdapterScale], answer=Success)
async def scaled(service: Service, request: Request) -> Response:
    """Set the usual scales of adapters."""
    raw = await read_body(request, service.settings.limits)
    caller = caller_of(request.scope)
    service.adapters.set(await elsewhere(caller, len(raw), lambda: _scales(raw)))
    return JSONAnswer({"success": True})


def _scales(raw: bytes) -> list[AdapterUse]:
    given = parse_value(raw)
    if not isinstance(given, list):
        raise bad_request('the body must be a list, such as [{"id": 0, "scale": 0.5}]')
    return [one.use for one in read(ScalesBody, {"lora": given}).lora]


@endpoints.post("/v1/load_lora_adapter", media_type="text/plain")
async def load(received: Received[LoadAdapterBody]) -> Response:
    """Load a LoRA adapter of the folders that the server allows."""
    body, service = received.body, received.service
    await service.require_new(body.lora_name)
    adapters, again = service.adapters, body.load_inplace or False
    work = service.alone(
        received.caller,
        adapters.changing,
        lambda: adapters.load(body.lora_name, body.lora_path, again=again),
    )
    await while_connected(received.http, work)
    return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' added successfully.")


@endpoints.post("/v1/unload_lora_adapter", media_type="text/plain")
async def unload(received: Received[UnloadAdapterBody]) -> Response:
    """Unload a LoRA adapter that was loaded so."""
    name, service = received.body.lora_name, received.service
    adapters = service.adapters
    work = service.alone(received.caller, adapters.changing, lambda: adapters.unload(name))
    await while_connected(received.http, work)
    return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")
