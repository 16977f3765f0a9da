"""What embedding models and rerankers answer, and as JSON what a process with one does: one object
a line.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
"""(n, d) one row for each text."""


@dataclass(frozen=True, slots=True)
class EmbeddingInfo:
    """A loaded embedding model or reranker."""

    name: str
    """Name that the user gave."""
    dimensions: int
    """d, the length of a vector."""
    longest: int
    """Most tokens of a text."""
    ranks: bool
    """Whether it scores documents for a query, instead of giving vectors."""
    backend: str = "cpu"
    """Where it is computed, as `ModelInfo.backend` has it."""
    notice: str = ""
    """What the user should know of how it was loaded, in one line."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The answer to several texts."""

    vectors: Vectors
    """(n, d) float32, of length 1 unless asked otherwise; of a reranker (n, 1), its scores."""
    counts: tuple[int, ...]
    """Tokens of each text."""

    @property
    def tokens(self) -> int:
        """Tokens of all of them."""
        return sum(self.counts)


def normalized(vectors: Vectors) -> Vectors:
    """The vectors with length 1 (Euclidean, as llama-server has it); zeros stay zeros."""
    lengths = np.sqrt(np.sum(vectors.astype(np.float64) ** 2, axis=1, keepdims=True))
    found: Vectors = (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return found


def joined(parts: Sequence[Embedded]) -> Embedded:
    """The answer to all texts, from those to parts of them."""
    counts = tuple(count for part in parts for count in part.counts)
    return Embedded(np.concatenate([part.vectors for part in parts]), counts)


def line(message: dict[str, Any]) -> bytes:
    """The line of a message."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def packed(found: Embedded) -> dict[str, Any]:
    """The fields of an answer."""
    rows = np.ascontiguousarray(found.vectors, "<f4")
    return {
        "shape": list(rows.shape),
        "vectors": base64.b64encode(rows.tobytes()).decode(),
        "counts": list(found.counts),
    }


def unpacked(message: dict[str, Any]) -> Embedded:
    """The answer that a message holds."""
    raw = np.frombuffer(base64.b64decode(message["vectors"]), "<f4")
    vectors = raw.reshape(message["shape"]).astype(np.float32)
    return Embedded(vectors, tuple(message["counts"]))
