"""Texts to vectors, and documents to scores, in the process that calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Self

import numpy as np

from localspec.core.embedded import Embedded, EmbeddingInfo, normalized
from localspec.core.errors import ContextError, DecodeError, OutOfMemoryError, UsageError
from localspec.core.options import NO_DRAFT
from localspec.llama.devices import backend
from localspec.llama.embedding import EmbeddingModel
from localspec.models.catalog.resolve import resolve
from localspec.models.compat.header_vocabulary import unsplit
from localspec.models.memory.machine import Memory, host_only, read_memory

Text = str | Sequence[int]
"""A text, or its tokens."""
_COMPUTING = 256 << 20
"""Bytes beside the weights, roughly."""
_CHARACTERS = 64
"""Most characters of a text for each token that it may have."""


class Embedder:
    """A loaded embedding model or reranker."""

    def __init__(
        self, name: str, *, gpu_layers: int | None = None, threads: int | None = None
    ) -> None:
        """``name`` is a name of the catalogue, a path or one of the Hub, as everywhere.

        Raises:
            UsageError, ModelNotFoundError, ModelFileError, OutOfMemoryError
        """
        file = resolve(name, NO_DRAFT).target
        size = sum(path.stat().st_size for path in file.paths if path.exists())
        free = host_only().host_free
        if size + _COMPUTING > free:
            raise OutOfMemoryError(
                f"{file.name} needs {(size + _COMPUTING) >> 20} MB, and {free >> 20} MB are free; "
                "choose a smaller embedding model, or end other programs"
            )
        notices = [unsplit(file.header)]
        if gpu_layers is None and not _fits_on_gpus(size, memory := read_memory()):
            gpu_layers = 0
            notices.append(
                f"{file.name} is computed on the processor: it needs "
                f"{(size + _COMPUTING) >> 20} MB of a GPU, and {memory.gpu_usable >> 20} MB are "
                "free; end other programs on the GPU to have it there"
            )
        self._model = EmbeddingModel(file.path, gpu_layers=gpu_layers, threads=threads)
        self.info = EmbeddingInfo(
            name=name,
            dimensions=1 if self._model.ranks else self._model.dimensions,
            longest=self._model.longest,
            ranks=self._model.ranks,
            backend="cpu" if gpu_layers == 0 else backend(),
            notice="; ".join(filter(None, notices)),
        )

    def embed(
        self,
        texts: Sequence[Text],
        *,
        truncate: bool = False,
        normalize: bool = True,
        first: int = 0,
    ) -> Embedded:
        """The vectors of texts; with ``truncate``, what is too long loses its end, but for the
        tokens that the model ends every text with. ``first`` is the number of the first text in
        errors.

        Raises:
            UsageError: no text, an empty one, a reranker, or tokens that the model does not have.
            ContextError: a text is too long.
            DecodeError: llama.cpp failed, or gave no numbers.
        """
        if self.info.ranks:
            raise UsageError(
                "this model is a reranker, and gives no vectors; load an embedding model"
            )
        split = [self._tokens(text, i, truncate=truncate) for i, text in enumerate(texts, first)]
        found = self._computed(split)
        return Embedded(normalized(found.vectors), found.counts) if normalize else found

    def rank(
        self, query: str, documents: Sequence[str], *, truncate: bool = False, first: int = 0
    ) -> Embedded:
        """(n, 1) the scores of documents for a query; the higher, the better. Otherwise as `embed`.

        Raises:
            UsageError: no document, or a model that does not rank.
            ContextError: a document is too long with the query.
            DecodeError: llama.cpp failed, or gave no numbers.
        """
        if not self.info.ranks:
            raise UsageError(
                "this model is no reranker: its file has no pooling of that kind; load one "
                "such as bge-reranker-v2-m3"
            )
        most = _CHARACTERS * self.info.longest
        split = []
        for i, document in enumerate(documents, first):
            if not truncate and len(query) + len(document) > most:
                raise self._too_long(i, "more", "document")
            tokens = self._model.pair_tokens(query[:most], document[:most])
            bare = functools.partial(self._model.pair_tokens, query[:most], "")
            split.append(self._fitting(tokens, i, "document", bare, truncate=truncate))
        return self._computed(split)

    def _tokens(self, text: Text, index: int, *, truncate: bool) -> list[int]:
        if not isinstance(text, str):
            self._model.require(text)
            return self._fitting(list(text), index, "text", self._bare, truncate=truncate)
        if not text:
            raise UsageError(f"text {index} is empty")
        most = _CHARACTERS * self.info.longest
        if len(text) > most and not truncate:
            raise self._too_long(index, "more", "text")
        tokens = self._model.tokens(text[:most])
        return self._fitting(tokens, index, "text", self._bare, truncate=truncate)

    def _bare(self) -> list[int]:
        return self._model.tokens("")

    def _fitting(
        self,
        tokens: list[int],
        index: int,
        what: str,
        bare: Callable[[], list[int]],
        *,
        truncate: bool,
    ) -> list[int]:
        """The tokens, cut where they are too many. What they end with in the same way as ``bare``,
        those of an empty text, is kept: the model has learnt to find the text's meaning there.
        """
        if not tokens:
            raise UsageError(f"{what} {index} has no tokens")
        if len(tokens) <= self.info.longest:
            return tokens
        if not truncate:
            raise self._too_long(index, str(len(tokens)), what)
        kept = min(_same_at_end(tokens, bare()), self.info.longest)
        return [*tokens[: self.info.longest - kept], *tokens[len(tokens) - kept :]]

    def _too_long(self, index: int, count: str, what: str) -> ContextError:
        most = self.info.longest
        return ContextError(
            f"{what} {index} has {count} tokens, and this model reads at most {most}; split it"
        )

    def _computed(self, split: Sequence[list[int]]) -> Embedded:
        if not split:
            raise UsageError("there is no text")
        # Texts of similar length share passes.
        order = sorted(range(len(split)), key=lambda i: len(split[i]))
        rows = self._model.rows([split[i] for i in order])
        vectors = np.empty_like(rows)
        vectors[order] = rows
        if not np.isfinite(vectors).all():
            raise DecodeError(f"{self.info.name} gave no numbers: its file may be damaged")
        return Embedded(vectors, tuple(len(tokens) for tokens in split))

    def close(self) -> None:
        """Free it. May be called twice."""
        self._model.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free it."""
        self.close()


def _same_at_end(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both end with."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _fits_on_gpus(size: int, memory: Memory) -> bool:
    """Whether weights of ``size`` bytes have room on this machine's GPUs, if it has any; llama.cpp
    aborts in a pass for which a GPU has no memory.
    """
    return not memory.gpus or memory.shared or size + _COMPUTING <= memory.gpu_usable
