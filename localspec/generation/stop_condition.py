"""The end of a reply, and its text: end tokens, stop strings and limits of lines."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from localspec.core.events import FinishReason
from localspec.decode.request import StopRule
from localspec.generation.line_limits import LineLimits


class TextStream:
    """Decodes UTF-8 across token borders and ends at the first stop string, or at a limit."""

    def __init__(self, stop: Sequence[str] = (), limits: LineLimits | None = None) -> None:
        self._limits = LineLimits() if limits is None else limits
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = tuple(s for s in stop if s)
        self._held = ""
        self._shown: list[str] = []
        self.stopped = False
        """Whether a stop string or a limit ended the text."""
        self.stop_text: str | None = None
        """The stop string that ended the text; None so far."""

    @property
    def text(self) -> str:
        """All that was released so far."""
        return "".join(self._shown)

    def feed(self, piece: bytes) -> str:
        """Text that is now safe to show."""
        self._held += self._decoder.decode(piece)
        return self._release(final=False)

    def finish(self) -> str:
        """Text held back so far, once no token follows."""
        self._held += self._decoder.decode(b"", final=True)
        return self._release(final=True)

    def _release(self, *, final: bool) -> str:
        if self.stopped:
            return ""
        ends = [(i, s) for s in self._stop if (i := self._held.find(s)) >= 0]
        if ends:
            safe, self.stop_text = min(ends)
            self.stopped = True
        else:
            safe = len(self._held) - (0 if final else self._doubtful())
        text, self._held = self._held[:safe], self._held[safe:]
        text = self._limits.within(text)
        if self._limits.reached:
            self.stopped, self.stop_text = True, None
        if text:
            self._shown.append(text)
        return text

    def _doubtful(self) -> int:
        """Length of the longest end of the held text that may begin a stop string."""
        longest = 0
        for stop in self._stop:
            for n in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:n]):
                    longest = n
                    break
        return longest


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
