"""How pictures come into the KV cache of a target: encoded first, then read row by row."""

from __future__ import annotations

import time
from collections.abc import Generator

from localspec.core.errors import LocalspecError, PassRefusedError
from localspec.core.media_rows import runs
from localspec.core.values import Tokens
from localspec.llama.context import Context
from localspec.llama.projector import Piece, Projector, Source


class PictureReading:
    """The pictures that are being read into the sequences of a context. Belongs to its target."""

    def __init__(self, context: Context) -> None:
        """Without an encoder until ``projector`` is set."""
        self._context = context
        self.projector: Projector | None = None
        """Knows the rows of the pictures that prompts have, once one was loaded."""
        self._passes: dict[int, tuple[Piece, Generator[None, None, None]]] = {}
        """Pictures whose first rows are in the cache, see `Context.picture_passes`."""
        self._encoding: dict[int, Source] = {}
        """What was begun to be encoded for sequences whose replies have not ended."""

    def begun(self, seq: int) -> bool:
        """Whether rows of a picture are in the cache of which not all are there."""
        return seq in self._passes

    def continues(self, seq: int, ids: Tokens) -> bool:
        """Whether these are rows of that picture."""
        known = self._passes.get(seq)
        piece = None if self.projector is None else self.projector.piece([*ids])
        return known is not None and known[0] is piece

    def noncausal_rows(self, tokens: Tokens) -> int:
        """See `localspec.core.target.Target`."""
        for start, end, picture in runs(tokens):
            if picture and self.projector is not None:
                piece = self.projector.piece([*tokens[start:end]])
                return piece.rows if piece.source is None and not piece.causal else 0
        return 0

    def append(self, seq: int, ids: Tokens, until: float | None, rows: int | None) -> bool:
        """Go on with the rows of a picture until that time of `time.perf_counter`, ``rows`` in a
        pass at most; whether all are there. If it raises, none of them are to be trusted.

        Raises:
            PassRefusedError: the target has no encoder.
            LocalspecError: the picture cannot be encoded, or a pass failed.
        """
        if self.projector is None:
            raise PassRefusedError("this target has no encoder for pictures")
        piece = self.projector.piece([*ids])
        try:
            if until is not None and piece.source is not None:
                self._encoding[seq] = piece.source
                source = piece.source
                if not piece.encoded(until):
                    return False
                if source.encoded:
                    del self._encoding[seq]
                if not piece.causal:  # one long pass, which others may have to be asked about
                    return False
            if seq not in self._passes:
                passes = self._context.picture_passes(seq, piece, rows or self._context.n_batch)
                self._passes[seq] = piece, passes
            for _ in self._passes[seq][1]:
                if until is not None and time.perf_counter() >= until:
                    return False
            del self._passes[seq]
        except LocalspecError:
            self._passes.pop(seq, None)
            raise
        return True

    def stop(self, seq: int) -> bool:
        """Remove the rows of a picture of which not all are there; whether there were any."""
        if seq not in self._passes:
            return False
        _, passes = self._passes.pop(seq)
        passes.close()
        return True

    def stop_encoding(self, seq: int) -> None:
        """See `localspec.core.target.ServingTarget`."""
        source = self._encoding.pop(seq, None)
        others = any(other is source for other in self._encoding.values())
        if source is not None and self.projector is not None and not others:
            self.projector.stop(source)
