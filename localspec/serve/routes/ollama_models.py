"""Ollama's paths about models: ``/api/tags``, ``/api/show``, ``/api/ps``, ``/api/version``,
``/api/pull``, ``/api/delete``, and those that are refused with the reason.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import PurePath
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from localspec import __version__
from localspec.core.options import NO_PROJECTOR, Options
from localspec.serve.backend.downloads import Progress
from localspec.serve.backend.model_facts import ModelFacts, facts_of
from localspec.serve.backend.public_name import public_name, untagged
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, while_connected
from localspec.serve.http.errors import ApiError
from localspec.serve.http.streamed import StreamedAnswer
from localspec.serve.requests.ollama import OllamaModelBody, OllamaPullBody
from localspec.serve.routes import examples
from localspec.serve.routes.answer_types import Anything, OllamaError, OllamaModels, OllamaStatus
from localspec.serve.routes.endpoint import Endpoints, Received
from localspec.serve.routes.ollama import PREFIX
from localspec.serve.routes.ollama_answer import FILLER, MEDIA_TYPE, OLLAMA, line, stamp

FOLLOWED = "0.13.5"
"""The version of Ollama whose interface this follows: clients refuse to speak with older ones."""
_NEVER = 292 * 365 * 86_400.0
"""Seconds that stand for no end, as with Ollama."""
endpoints = Endpoints()


@endpoints.get(f"{PREFIX}/tags", answer=OllamaModels)
async def tags(service: Service, request: Request) -> Response:
    """The models, as Ollama lists them."""
    del request
    models = {model.name: model.options for model in await service.models.listed()}
    models |= service.embeddings.listed
    entries = [_entry(name, await facts_of(options)) for name, options in models.items()]
    return JSONAnswer({"models": entries})


@endpoints.get(f"{PREFIX}/ps", answer=OllamaModels)
async def loaded(service: Service, request: Request) -> Response:
    """The loaded models, as Ollama has them: those of texts too."""
    del request
    slots, found = service.slots, []
    for options in slots.every:
        slot, info = slots.slot_of(options), slots.info_of(options)
        if slot is None or info is None:
            continue
        kept = slot.kept
        entry = _entry(public_name(options.model), await facts_of(options))
        entry["size"] = info.target_bytes + info.draft_bytes
        found.append(entry | _place(entry["size"], info.backend, info.context, kept))
    for process in service.embeddings.processes.values():
        if (text := process.info) is not None:
            facts = await facts_of(Options(model=process.model, mmproj=NO_PROJECTOR))
            entry = _entry(public_name(process.model), facts)
            found.append(entry | _place(entry["size"], text.backend, text.longest, None))
    return JSONAnswer({"models": found})


@endpoints.get(f"{PREFIX}/version")
async def version(service: Service, request: Request) -> Response:
    """The version of Ollama's interface."""
    del service, request
    return JSONAnswer({"version": FOLLOWED, "localspec": __version__})


@endpoints.post(f"{PREFIX}/show", answer=Anything, example=examples.OLLAMA_SHOW, error=OllamaError)
async def show(received: Received[OllamaModelBody]) -> Response:
    """One model, as Ollama describes it."""
    name, service = received.body.wanted, received.service
    vectors = service.embeddings.vectors_of(name) is not None
    facts = await _facts_of(service, name)
    if facts is None:
        raise ApiError(HTTPStatus.NOT_FOUND, "the files of this model cannot be read")
    return JSONAnswer(
        {
            "license": facts.licence,
            "modelfile": f"# localspec serves {untagged(name)}; it has no Modelfile",
            "parameters": "",
            "template": facts.template,
            "details": _details(facts),
            "model_info": dict(facts.metadata)
            | {"general.parameter_count": facts.parameters}
            | {"general.architecture": facts.family},
            "capabilities": ["embedding"] if vectors else _capabilities(facts),
            "modified_at": stamp(facts.modified),
        }
    )


@endpoints.post(
    f"{PREFIX}/pull", answer=OllamaStatus, stream=True, stream_type=MEDIA_TYPE, error=OllamaError
)
async def pull(received: Received[OllamaPullBody]) -> Response:
    """Download a model."""
    service, body = received.service, received.body
    messages = service.downloads.pull(untagged(body.wanted))
    if body.stream is not False:
        return StreamedAnswer(
            (line(message) async for message in messages),
            service.settings.limits,
            failed=OLLAMA.event,
            media_type=MEDIA_TYPE,
            comment=FILLER,
        )
    return JSONAnswer(await while_connected(received.http, _last(messages)))


@endpoints.post(f"{PREFIX}/delete", answer=Anything, method="DELETE", error=OllamaError)
async def delete(received: Received[OllamaModelBody]) -> Response:
    """Remove a downloaded model, where the server allows it."""
    await received.service.downloads.delete(untagged(received.body.wanted))
    return JSONAnswer({})


def _refuse(name: str, why: str) -> None:
    """Refuse a path with a sentence. Status 400 rather than 501, which clients repeat."""

    async def refuse(service: Service, request: Request) -> Response:
        del service, request
        raise ApiError(HTTPStatus.BAD_REQUEST, why)

    refuse.__doc__ = f"Refused: {why}"
    endpoints.post_unread(f"{PREFIX}/{name}", answer=Anything, error=OllamaError)(refuse)


_refuse("create", "this server makes no models; add a pair to models.toml on its machine")
_refuse("copy", "this server copies no models; start it with --alias NAME for another name")
_refuse("push", "this server uploads no models")


async def _last(messages: AsyncIterator[Progress]) -> Progress:
    last: Progress = {}
    async for message in messages:
        last = message
    return last


async def _facts_of(service: Service, name: str) -> ModelFacts | None:
    options = service.embeddings.vectors_of(name) or (await service.models.wanted(name)).options
    return await facts_of(options or service.slots.options)


def _entry(name: str, facts: ModelFacts | None) -> dict[str, Any]:
    """A model in a list."""
    tagged = name if ":" in PurePath(name).name else f"{name}:latest"
    return {
        "name": tagged,
        "model": tagged,
        "modified_at": stamp(facts.modified if facts is not None else 0.0),
        "size": facts.n_bytes if facts is not None else 0,
        "digest": facts.digest if facts is not None else "",
        "details": _details(facts),
    }


def _place(size: int, backend: str, context: int, kept: float | None) -> dict[str, Any]:
    """Where a loaded model is, and how many seconds longer; None: until the server ends."""
    return {
        "size_vram": 0 if backend == "cpu" else size,
        "context_length": context,
        "expires_at": stamp(time.time() + (_NEVER if kept is None else kept)),
    }


def _details(facts: ModelFacts | None) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "gguf",
        "family": facts.family if facts is not None else "",
        "families": [facts.family] if facts is not None else [],
        "parameter_size": facts.size_name if facts is not None else "",
        "quantization_level": facts.quantization if facts is not None else "",
    }


def _capabilities(facts: ModelFacts) -> list[str]:
    """Tools need no template of a special kind: their calls follow a grammar."""
    found = ["completion"]
    if facts.fills:
        found.append("insert")
    if facts.template:
        found.append("tools")
    if facts.sees:
        found.append("vision")
    if facts.thinks:
        found.append("thinking")
    return found
