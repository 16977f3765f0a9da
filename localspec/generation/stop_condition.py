"""The end of a reply, and its text: end tokens, stop strings and limits of lines."""

from __future__ import annotations

from typing import Protocol

from localspec.core.events import FinishReason
from localspec.decode.request import StopRule
from localspec.generation.detokenizer import TextStream
from localspec.generation.line_limits import LineLimits


class Pieces(Protocol):
    """Turns tokens into bytes, and knows which end a reply."""

    @property
    def end_ids(self) -> frozenset[int]: ...
    def piece(self, token: int) -> bytes: ...
    def marker(self, token: int) -> str: ...


class StopCondition(StopRule):
    """Ends a reply at the model's end tokens, a stop string or a limit, and builds its text."""

    def __init__(
        self,
        model: Pieces,
        stop: tuple[str, ...],
        shown: frozenset[int] = frozenset(),
        limits: LineLimits | None = None,
    ) -> None:
        """Control tokens ``shown`` appear in the text by name."""
        self._limits = LineLimits() if limits is None else limits
        self._model = model
        self._shown = shown
        self.end_ids = model.end_ids
        self.stream = TextStream(stop, self._limits)

    def take(self, token: int) -> tuple[str, FinishReason | None]:
        """See `StopRule.take`."""
        self._limits.begin()
        if token in self.end_ids:
            return "", "stop"
        piece = self._model.piece(token)
        if token in self._shown and not piece:
            piece = self._model.marker(token).encode()
        text = self.stream.feed(piece)
        if self._limits.reached or self._limits.over(text):
            return text, "length"
        return text, "stop" if self.stream.stopped else None

    def finish(self) -> str:
        """See `StopRule.finish`."""
        return self.stream.finish()
