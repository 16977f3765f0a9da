"""Vectors of texts and the order of documents: ``/v1/embeddings``, llama-server's ``/embedding``,
Ollama's ``/api/embed`` and ``/api/embeddings``, and ``/v1/rerank``.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Coroutine
from typing import Any

import numpy as np
from starlette.responses import Response

from localspec.core.embedded import Embedded, Vectors, normalized
from localspec.core.errors import LocalspecError
from localspec.serve.backend.records import texts_line
from localspec.serve.http.bodies import JSONAnswer, elsewhere, while_connected
from localspec.serve.http.errors import OpenAIShape, bad_request
from localspec.serve.http.json_body import shown
from localspec.serve.replies.answer_fields import new_id
from localspec.serve.requests.embeddings import (
    EmbeddingsBody,
    NativeEmbeddingBody,
    RerankBody,
    read_texts,
)
from localspec.serve.requests.ollama import OllamaEmbedBody, OllamaPromptBody
from localspec.serve.routes import answer_types, examples
from localspec.serve.routes.endpoint import Endpoints, Received
from localspec.serve.routes.ollama import PREFIX
from localspec.serve.routes.ollama_answer import nanoseconds

PATHS = ("/v1/embeddings", "/embeddings")
RERANK_PATHS = ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")
SHAPE, RERANK_SHAPE = OpenAIShape("input"), OpenAIShape("documents")
"""Shapes of errors."""
_NUMBER_BYTES = 20
"""Bytes of a number of an answer."""


endpoints = Endpoints()


@endpoints.post(*PATHS, answer=answer_types.EmbeddingList, example=examples.EMBEDDINGS)
async def embeddings(received: Received[EmbeddingsBody]) -> Response:
    """Vectors of texts."""
    body, own = received.body, received.service.embeddings
    texts = await received.apart(body.texts)
    found = await _found(received, own.embed(body.model, texts, caller=received.caller.owner))
    vectors = _shortened(found.vectors, body.dimensions)
    as_text = body.encoding_format == "base64"

    def answer() -> Response:
        data = [
            {"object": "embedding", "index": i, "embedding": _vector(row, as_text=as_text)}
            for i, row in enumerate(vectors)
        ]
        name = own.names["embedding"]
        return JSONAnswer({"object": "list", "data": data, "model": name, "usage": _usage(found)})

    return await elsewhere(received.caller, _NUMBER_BYTES * vectors.size, answer)


@endpoints.post(
    "/embedding", answer=list[answer_types.NativeEmbedding], example=examples.NATIVE_EMBEDDING
)
async def native(received: Received[NativeEmbeddingBody]) -> Response:
    """Vectors of texts, in llama-server's shape."""
    body = received.body
    texts = await received.apart(lambda: read_texts(body.content, "content"))
    found = await _found(
        received, received.service.embeddings.embed(body.model, texts, caller=received.caller.owner)
    )

    def answer() -> Response:
        rows = enumerate(found.vectors)
        return JSONAnswer([{"index": i, "embedding": [row.tolist()]} for i, row in rows])

    return await elsewhere(received.caller, _NUMBER_BYTES * found.vectors.size, answer)


@endpoints.post(
    f"{PREFIX}/embed",
    example=examples.OLLAMA_EMBED,
    answer=answer_types.Anything,
    error=answer_types.OllamaError,
)
async def ollama_embed(received: Received[OllamaEmbedBody]) -> Response:
    """Vectors of texts, as Ollama has them."""
    body, began = received.body, time.monotonic()
    found = await _for_ollama(received, body.texts(), truncate=body.truncate is not False)
    vectors = _shortened(found.vectors, body.dimensions)
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

    return await elsewhere(received.caller, _NUMBER_BYTES * vectors.size, answer)


@endpoints.post(
    f"{PREFIX}/embeddings",
    example=examples.OLLAMA_PROMPT,
    answer=answer_types.Anything,
    error=answer_types.OllamaError,
)
async def ollama_single(received: Received[OllamaPromptBody]) -> Response:
    """The vector of one text, as Ollama had it before."""
    found = await _for_ollama(received, [received.body.prompt], truncate=True)
    return JSONAnswer({"embedding": found.vectors[0].tolist()})


async def _for_ollama(received: Received[Any], texts: list[str], *, truncate: bool) -> Embedded:
    own, model = received.service.embeddings, received.body.model
    work = own.embed(model or None, texts, truncate=truncate, caller=received.caller.owner)
    return await _found(received, work)


@endpoints.post(*RERANK_PATHS, answer=answer_types.Ranking, example=examples.RERANK)
async def rerank(received: Received[RerankBody]) -> Response:
    """Documents by how well they answer a query.

    Jina's and Cohere's shape, the best one first. Scores are the model's own, as llama-server has
    them: not between 0 and 1 unless it was trained so.
    """
    body, own = received.body, received.service.embeddings
    texts = body.texts
    found = await _found(
        received, own.rank(body.model, body.query, texts, caller=received.caller.owner), "rerank"
    )
    scores = found.vectors[:, 0]
    best = np.argsort(-scores, kind="stable")[: body.top_n]
    results: list[dict[str, Any]] = []
    for i in best.tolist():
        results.append({"index": i, "relevance_score": float(scores[i])})
        if body.return_documents:
            results[-1]["document"] = {"text": texts[i]}
    return JSONAnswer(
        {
            "id": new_id("rerank"),
            "object": "list",
            "model": own.names["rerank"],
            "results": results,
            "usage": _usage(found),
        }
    )


async def _found(
    received: Received[Any], work: Coroutine[Any, Any, Embedded], task: str = "embedding"
) -> Embedded:
    """What ``work`` finds for a request, counted and logged.

    Raises:
        ApiError: it fails.
    """
    began, service = time.monotonic(), received.service
    counts = service.metrics.of_texts[task]
    try:
        found = await while_connected(received.http, work)
    except LocalspecError as error:
        counts.fail()
        raise service.refused(error) from None
    except Exception:
        counts.fail()
        raise
    seconds = time.monotonic() - began
    counts.note(found, seconds)
    model, path = shown(received.body.model or ""), received.http.url.path
    service.reporter.line(texts_line(received.caller, path, model, found, seconds))
    return found


def _shortened(vectors: Vectors, dimensions: int | None) -> Vectors:
    """The first dimensions of each vector, at length 1 (Matryoshka).

    Raises:
        ApiError: the vectors have fewer.
    """
    width = vectors.shape[1]
    if dimensions is None or dimensions == width:
        return vectors
    if dimensions > width:
        raise bad_request(f"dimensions must be at most {width}, the model's", "dimensions")
    return normalized(vectors[:, :dimensions])


def _vector(row: Any, *, as_text: bool) -> Any:
    if as_text:
        return base64.b64encode(np.ascontiguousarray(row, "<f4").tobytes()).decode()
    return row.tolist()


def _usage(found: Embedded) -> dict[str, int]:
    return {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
