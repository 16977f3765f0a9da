"""``/api/embed`` and ``/api/embeddings``: vectors of texts in Ollama's shapes."""

from __future__ import annotations

import time
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from localspec.core.embedded import Embedded
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, elsewhere
from localspec.serve.requests.ollama import OllamaEmbedBody, OllamaPromptBody
from localspec.serve.routes import examples
from localspec.serve.routes.answers import Anything, OllamaError
from localspec.serve.routes.embeddings import NUMBER_BYTES, found_by, shortened
from localspec.serve.routes.endpoint import Received, post
from localspec.serve.routes.ollama import PREFIX
from localspec.serve.routes.ollama_answer import nanoseconds
from localspec.serve.routes.ollama_models import plain


def routes(service: Service) -> list[BaseRoute]:
    """The paths."""
    found = _Routes(service)
    described: dict[str, Any] = {"answer": Anything, "error": OllamaError}
    return [
        *post(
            service,
            f"{PREFIX}/embed",
            found.embed,
            "Vectors of texts, as Ollama has them",
            body=OllamaEmbedBody,
            example=examples.OLLAMA_EMBED,
            **described,
        ),
        *post(
            service,
            f"{PREFIX}/embeddings",
            found.single,
            "The vector of one text, as Ollama had it before",
            body=OllamaPromptBody,
            example=examples.OLLAMA_PROMPT,
            **described,
        ),
    ]


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def embed(self, received: Received[OllamaEmbedBody]) -> Response:
        """Several texts."""
        body, began = received.body, time.monotonic()
        found = await self._found(received, body.model, body.texts(), body.truncate is not False)
        vectors = shortened(found.vectors, body.dimensions)
        taken = nanoseconds(time.monotonic() - began)

        def answer() -> Response:
            return JSONAnswer(
                {
                    "model": body.model or "",
                    "embeddings": vectors.tolist(),
                    "total_duration": taken,
                    "load_duration": 0,
                    "prompt_eval_count": found.tokens,
                }
            )

        return await elsewhere(NUMBER_BYTES * vectors.size, answer)

    async def single(self, received: Received[OllamaPromptBody]) -> Response:
        """One text."""
        body = received.body
        found = await self._found(received, body.model, [body.prompt], True)
        return JSONAnswer({"embedding": found.vectors[0].tolist()})

    async def _found(
        self, received: Received[Any], model: str | None, texts: list[str], truncate: bool
    ) -> Embedded:
        own = self._service.embeddings
        work = own.embed(plain(model) if model else None, texts, truncate=truncate)
        return await found_by(self._service, received, work)
