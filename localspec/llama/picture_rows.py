"""The rows of a picture as batches of embeddings."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.llama.batch import Batch
from localspec.llama.projector import Piece


class PictureRows:
    """The rows of one piece, encoded, with their positions."""

    def __init__(self, piece: Piece, stream: int, place: int) -> None:
        """They go to a stream of the KV cache, from position ``place`` on.

        Raises:
            DecodeError: the encoder failed.
            Interrupted
        """
        self._embeddings = piece.embeddings()
        self._stream = stream
        self._places = piece.places(place)[: piece.dimensions]

    def parts(self, most: int) -> Iterator[tuple[Batch, int]]:
        """Batches of at most ``most`` rows, each with its number of rows."""
        rows, width = self._embeddings.shape
        dimensions = len(self._places)
        for at in range(0, rows, most):
            n = min(most, rows - at)
            batch = Batch(n, states=width, tokens=False, dimensions=dimensions)
            batch.states[:] = self._embeddings[at : at + n]
            batch.positions[:] = self._places[:, at : at + n].ravel()
            batch.seqs[:, 0] = self._stream
            batch.outputs[:] = 0
            yield batch, n
