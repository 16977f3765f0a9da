"""The embedding model and the reranker of a server, each in a process of its own.

``service.embeddings.embed(name, texts)`` is what every route of embeddings calls, whatever its
shape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from localspec.core.embedded import Embedded
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.options import NO_DRAFT, NO_PROJECTOR, Options
from localspec.engine.embedding_process import EmbeddingProcess
from localspec.serve.backend.public_name import public_name, spelt
from localspec.serve.backend.reporter import Reporter
from localspec.serve.http.errors import bad_request, no_such_model

_LOAD = {
    "embedding": "nomic-embed-text, bge-m3 or Qwen3-Embedding",
    "reranker": "bge-reranker-v2-m3 or Qwen3-Reranker",
}
_DOES = {"embedding": "gives no embeddings", "reranker": "ranks no documents"}


class Embeddings:
    """What a server has for texts that are not answered."""

    def __init__(
        self,
        embedding: EmbeddingProcess | None = None,
        reranker: EmbeddingProcess | None = None,
        aliases: tuple[str, ...] = (),
        reporter: Reporter | None = None,
    ) -> None:
        """``aliases`` are further names of both; "*" stands for every name. ``reporter`` is told
        what the user should know of how the models were loaded.
        """
        self._embedding, self._reranker = embedding, reranker
        self._aliases = aliases
        self._reporter = reporter
        self._told = set[str]()
        self.others: Callable[[str], Awaitable[bool]] = _none
        """Whether a name is that of a model of the server for replies."""

    @property
    def processes(self) -> dict[str, EmbeddingProcess]:
        """The processes of the models, by what a model is for: "embedding" or "rerank"."""
        both = {"embedding": self._embedding, "rerank": self._reranker}
        return {task: one for task, one in both.items() if one is not None}

    @property
    def names(self) -> dict[str, str]:
        """The names that requests call the models by, by what a model is for."""
        return {task: public_name(one.model) for task, one in self.processes.items()}

    def task_of(self, name: str) -> str | None:
        """What the model of that name is for, as in `processes`; None where it is none of them."""
        names = {*spelt(name)}
        for task, own in self.processes.items():
            if names & {own.model, public_name(own.model)}:
                return task
        return None

    @property
    def listed(self) -> dict[str, Options]:
        """The options of the embedding model by its name, where there is one."""
        own = self._embedding
        if own is None:
            return {}
        return {public_name(own.model): Options(model=own.model, mmproj=NO_PROJECTOR)}

    def vectors_of(self, name: str) -> Options | None:
        """The options of the embedding model, where that is its name."""
        return next(iter(self.listed.values())) if self.task_of(name) == "embedding" else None

    def require_other(self, name: str | None) -> None:
        """Refuse a request for a reply that names one of them.

        Raises:
            ApiError: 400, it does.
        """
        task = None if name is None else self.task_of(name)
        if task is not None:
            path = "/v1/embeddings" if task == "embedding" else "/v1/rerank"
            said = f"{name} writes no text; ask it at {path}"
            raise bad_request(said, "model", "not_supported")

    async def start(self) -> None:
        """Load them, one after the other: before the chat model, whose plan counts the memory that
        is free.

        Raises:
            LocalspecError: one cannot be loaded, or is not of its kind.
        """
        for process in self.processes.values():
            info = await process.start()
            self._tell(process)
            self._require_kind(process, ranks=info.ranks)

    async def check(self) -> None:
        """Look at what is here of them, where they are loaded with their first request.

        Raises:
            UsageError: one is not of its kind.
        """
        for process in self.processes.values():
            ranks = await asyncio.to_thread(_ranks, process.model)
            if ranks is not None:
                self._require_kind(process, ranks=ranks)

    def _require_kind(self, process: EmbeddingProcess, *, ranks: bool) -> None:
        if ranks != (process is self._reranker):
            wanted = "--embedding" if ranks else "--reranker"
            kind = "a reranker" if ranks else "an embedding model"
            given = "--reranker" if ranks else "--embedding"
            raise UsageError(f"{process.model} is {kind}: {wanted} takes none, {given} does")

    async def close(self) -> None:
        """End them."""
        for process in self.processes.values():
            await process.close()

    async def embed(
        self,
        name: str | None,
        texts: Sequence[str | Sequence[int]],
        *,
        truncate: bool = False,
        caller: str = "",
    ) -> Embedded:
        """The vectors of texts, or of their tokens, of length 1. ``name`` is the model that the
        request names, if any; with ``truncate``, what is too long loses its end.
        Callers have the model in turn.

        Raises:
            ApiError: 400, where the server has no embedding model, or the name is another model's;
                404, where it is none's.
            LocalspecError: as `EmbeddingProcess.embed`.
        """
        process = await self._chosen(name, "embedding", self._embedding)
        found = await process.embed(texts, truncate=truncate, caller=caller)
        self._tell(process)
        return found

    async def rank(
        self, name: str | None, query: str, documents: Sequence[str], *, caller: str = ""
    ) -> Embedded:
        """(n, 1) the scores of documents for a query; otherwise as `embed`."""
        process = await self._chosen(name, "reranker", self._reranker)
        found = await process.rank(query, documents, caller=caller)
        self._tell(process)
        return found

    def _tell(self, process: EmbeddingProcess) -> None:
        """Tell, once, what the user should know of a process, which may have begun just now."""
        notice = "" if process.info is None else process.info.notice
        if notice and notice not in self._told and self._reporter is not None:
            self._told.add(notice)
            self._reporter.notice(notice)

    async def _chosen(
        self, name: str | None, kind: str, process: EmbeddingProcess | None
    ) -> EmbeddingProcess:
        if process is None:
            raise bad_request(
                f"this server has no model for it: a chat model {_DOES[kind]}; start it with "
                f"--{kind} MODEL, such as {_LOAD[kind]}",
                "model",
                "not_supported",
            )
        own, aliases = public_name(process.model), self._aliases
        if not name or "*" in aliases or {*spelt(name)} & {own, process.model, *aliases}:
            return process
        instead, shown = f"ask {own!r}, or leave the name out", name[:80]
        if self.task_of(name) is not None or await self.others(name):
            said = f"{shown!r} {_DOES[kind]} here; {instead}"
            raise bad_request(said, "model", "not_supported")
        raise no_such_model(f"there is no model {shown!r} here; {instead}")


def _ranks(model: str) -> bool | None:
    """Whether a model is a reranker, by its header; None where loading it says what is wrong."""
    from localspec.models.catalog.resolve import resolve
    from localspec.models.compat.header_vocabulary import NO_POOLING, RANK_POOLING

    try:
        pooling = resolve(model, NO_DRAFT).target.header.of_model("pooling_type") or 0
    except LocalspecError:
        return None
    return None if pooling in NO_POOLING else pooling == RANK_POOLING


async def _none(name: str) -> bool:
    """There are no other models."""
    del name
    return False
