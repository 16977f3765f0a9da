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
from starlette.routing import BaseRoute

from localspec import __version__
from localspec.serve.backend.downloads import Downloads
from localspec.serve.backend.model_facts import KnownFacts, ModelFacts
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, StreamedAnswer, while_connected
from localspec.serve.http.errors import ApiError
from localspec.serve.requests.ollama import OllamaModelBody, OllamaPullBody
from localspec.serve.routes import examples
from localspec.serve.routes.answers import Anything, OllamaError, OllamaModels, OllamaStatus
from localspec.serve.routes.endpoint import Received, get, post, post_untyped
from localspec.serve.routes.ollama import PREFIX
from localspec.serve.routes.ollama_answer import FILLER, MEDIA_TYPE, OLLAMA, line, stamp

FOLLOWED = "0.13.5"
"""The version of Ollama whose interface this follows: clients refuse to speak with older ones."""
_NEVER = 292 * 365 * 86_400.0
"""Seconds that stand for no end, as with Ollama."""
_LATEST = ":latest"
_REFUSED: dict[str, str] = {
    "create": "this server makes no models; add a pair to models.toml on its machine",
    "copy": "this server copies no models; start it with --alias NAME for another name",
    "push": "this server uploads no models",
}
"""Paths that are refused, and why."""


def routes(service: Service) -> list[BaseRoute]:
    """The endpoints."""
    models = Models(service)
    described: dict[str, Any] = {"error": OllamaError}
    found = [
        *get(f"{PREFIX}/tags", models.tags, "The models, as Ollama lists them", OllamaModels),
        *get(f"{PREFIX}/ps", models.loaded, "The loaded model, as Ollama has it", OllamaModels),
        *get(f"{PREFIX}/version", models.version, "The version of Ollama's interface"),
        *post(
            service,
            f"{PREFIX}/show",
            models.show,
            "One model, as Ollama describes it",
            body=OllamaModelBody,
            answer=Anything,
            example=examples.OLLAMA_SHOW,
            **described,
        ),
        *post(
            service,
            f"{PREFIX}/pull",
            models.pull,
            "Download a model",
            body=OllamaPullBody,
            answer=OllamaStatus,
            stream=True,
            stream_type=MEDIA_TYPE,
            **described,
        ),
        *post(
            service,
            f"{PREFIX}/delete",
            models.delete,
            "Remove a downloaded model, where the server allows it",
            body=OllamaModelBody,
            answer=Anything,
            method="DELETE",
            **described,
        ),
    ]
    for name, why in _REFUSED.items():
        said = f"Refused: {why}"
        found += post_untyped(f"{PREFIX}/{name}", refusing(why), said, answer=Anything, **described)
    return found


def refusing(why: str) -> Any:
    """A handler that refuses with a sentence. Status 400 rather than 501, which clients repeat."""

    async def refuse(request: Request) -> Response:
        del request
        raise ApiError(HTTPStatus.BAD_REQUEST, why)

    return refuse


class Models:
    """The endpoints."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._facts = KnownFacts()
        self._downloads = Downloads(service)

    async def tags(self, request: Request) -> Response:
        """List the models."""
        del request
        found = []
        for model in await self._service.models.listed():
            facts = await self._facts_of(model.name)
            found.append(_entry(model.name, facts))
        return JSONAnswer({"models": found})

    async def loaded(self, request: Request) -> Response:
        """List the models that are loaded."""
        del request
        slots, found = self._service.slot, []
        for name, info in slots.loaded.items():
            options = await self._service.models.options(name)
            slot = slots.slot_of(options)
            kept = None if slot is None else slot.kept
            size = info.target_bytes + info.draft_bytes
            entry = _entry(name, await self._facts_of(name)) | {
                "size": size,
                "size_vram": 0 if info.backend == "cpu" else size,
                "context_length": info.context,
                "expires_at": stamp(time.time() + (_NEVER if kept is None else kept)),
            }
            found.append(entry)
        return JSONAnswer({"models": found})

    async def version(self, request: Request) -> Response:
        """Tell which interface this is, and whose."""
        del request
        return JSONAnswer({"version": FOLLOWED, "localspec": __version__})

    async def show(self, received: Received[OllamaModelBody]) -> Response:
        """Describe one model."""
        name = received.body.wanted
        await self._service.models.options(name)
        facts = await self._facts_of(name)
        if facts is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "the files of this model cannot be read")
        return JSONAnswer(
            {
                "license": facts.licence,
                "modelfile": f"# localspec serves {plain(name)}; it has no Modelfile",
                "parameters": "",
                "template": facts.template,
                "details": _details(facts),
                "model_info": dict(facts.metadata)
                | {"general.parameter_count": facts.parameters}
                | {"general.architecture": facts.family},
                "capabilities": _capabilities(facts),
                "modified_at": stamp(facts.modified),
            }
        )

    async def pull(self, received: Received[OllamaPullBody]) -> Response:
        """Download a model."""
        body = received.body
        name = plain(body.wanted)
        if body.stream is not False:
            return StreamedAnswer(
                self._lines(name),
                self._service.settings.limits,
                shape=OLLAMA,
                media_type=MEDIA_TYPE,
                comment=FILLER,
            )
        return JSONAnswer(await while_connected(received.http, self._whole(name)))

    async def delete(self, received: Received[OllamaModelBody]) -> Response:
        """Remove a model."""
        await self._downloads.delete(plain(received.body.wanted))
        return JSONAnswer({})

    async def _lines(self, name: str) -> AsyncIterator[bytes]:
        async for message in self._downloads.pull(name):
            yield line(message)

    async def _whole(self, name: str) -> dict[str, Any]:
        last: dict[str, Any] = {}
        async for message in self._downloads.pull(name):
            last = message
        return last

    async def _facts_of(self, name: str) -> ModelFacts | None:
        slot = self._service.slot
        return await self._facts.of(await self._service.models.options(name) or slot.options)


def plain(name: str) -> str:
    """A name without the tag that Ollama gives to names without one."""
    return name.removesuffix(_LATEST)


def _entry(name: str, facts: ModelFacts | None) -> dict[str, Any]:
    """A model in a list."""
    tagged = name if ":" in PurePath(name).name else f"{name}{_LATEST}"
    return {
        "name": tagged,
        "model": tagged,
        "modified_at": stamp(facts.modified if facts is not None else 0.0),
        "size": facts.n_bytes if facts is not None else 0,
        "digest": facts.digest if facts is not None else "",
        "details": _details(facts),
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
    if facts.template:
        found.append("tools")
    if facts.sees:
        found.append("vision")
    if facts.thinks:
        found.append("thinking")
    return found
