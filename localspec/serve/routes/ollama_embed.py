"""``/api/embed`` and ``/api/embeddings``: vectors of texts in Ollama's shapes."""

from __future__ import annotations

import time
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from localspec.core.embedded import Embedded
from localspec.serve.backend.model_names import untagged
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, elsewhere
from localspec.serve.requests.ollama import OllamaEmbedBody, OllamaPromptBody
from localspec.serve.routes import examples
from localspec.serve.routes.answers import Anything, OllamaError
from localspec.serve.routes.embeddings import NUMBER_BYTES, found_by, shortened
from localspec.serve.routes.endpoint import Received, post
from localspec.serve.routes.ollama import PREFIX
from localspec.serve.routes.ollama_answer import nanoseconds


def routes(service: Service) -> list[BaseRoute]:
    """The paths."""
    described: dict[str, Any] = {"answer": Anything, "error": OllamaError}
    return [
        *post(
            service,
            f"{PREFIX}/embed",
            embed,
            "Vectors of texts, as Ollama has them",
            body=OllamaEmbedBody,
            example=examples.OLLAMA_EMBED,
            **described,
        ),
        *post(
            service,
            f"{PREFIX}/embeddings",
            single,
            "The vector of one text, as Ollama had it before",
            body=OllamaPromptBody,
            example=examples.OLLAMA_PROMPT,
            **described,
        ),
    ]


async def embed(received: Received[OllamaEmbedBody]) -> Response:
    """Several texts."""
    body, began = received.body, time.monotonic()
    found = await _found(received, body.texts(), truncate=body.truncate is not False)
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


async def single(received: Received[OllamaPromptBody]) -> Response:
    """One text."""
    found = await _found(received, [received.body.prompt], truncate=True)
    return JSONAnswer({"embedding": found.vectors[0].tolist()})


async def _found(received: Received[Any], texts: list[str], *, truncate: bool) -> Embedded:
    own, model = received.service.embeddings, received.body.model
    return await found_by(
        received, own.embed(untagged(model) if model else None, texts, truncate=truncate)
    )
