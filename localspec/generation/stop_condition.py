"""The end of a reply, and its text: end tokens, stop strings and limits of lines.

Limits of lines are llama-server's: too little indentation (``n_indent``), and a time after which
the reply ends with its line (``t_max_predict_ms``).
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Sequence

from localspec.core.events import FinishReason
from localspec.core.infill import Infill
from localspec.decode.request import StopRule
from localspec.generation.runnable import RunnableModel


class LineLimits:
    """Follows the text of one reply."""

    def __init__(
        self,
        indent: int = 0,
        seconds: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``indent`` is what a further line must begin with, in spaces or tabs; ``seconds`` after
        the first token the reply ends with the next line that ends.
        """
        self._indent, self._seconds, self._clock = indent, seconds, clock
        self._begun: float | None = None
        self._spaces: int | None = None
        """Spaces at the beginning of the present line; None: it has begun with enough, or is the
        first one."""
        self.reached = False
        """Whether a line was indented too little."""

    @classmethod
    def of(cls, infill: Infill | None) -> LineLimits:
        """The limits that a request at a cursor sets."""
        if infill is None:
            return cls()
        return cls(infill.indent, infill.predict_seconds)

    def begin(self) -> None:
        """A token was emitted; time counts from the first one."""
        if self._begun is None and self._seconds is not None:
            self._begun = self._clock()

    def within(self, text: str) -> str:
        """The part of the next text before what is indented too little."""
        if not self._indent:
            return text
        for i, character in enumerate(text):
            if self._spaces is not None:
                if character in " \t":
                    self._spaces += 1
                elif self._spaces < self._indent:
                    self.reached = True
                    return text[:i]
                else:
                    self._spaces = None
            if character == "\n":
                self._spaces = 0
        return text

    def over(self, text: str) -> bool:
        """Whether the reply ends with this part of its text, as a line does after the time."""
        if self._seconds is None or self._begun is None or "\n" not in text:
            return False
        return self._clock() - self._begun > self._seconds


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


class StopCondition(StopRule):
    """Ends a reply at the model's end tokens, a stop string or a limit, and builds its text."""

    def __init__(
        self,
        model: RunnableModel,
        stop: tuple[str, ...],
        shown: frozenset[int],
        limits: LineLimits,
    ) -> None:
        """Control tokens ``shown`` appear in the text by name."""
        self._limits = limits
        self._model = model
        self._shown = shown
        self.end_ids = model.end_ids
        self.stream = TextStream(stop, self._limits)
        self.hides = False
        """Whether a token before the end is not in the text, as a control token is not."""
        self.limited = False
        """Whether a limit of lines ended the reply."""

    def take(self, token: int) -> tuple[str, FinishReason | None]:
        """See `StopRule.take`."""
        self._limits.begin()
        if token in self.end_ids:
            return "", "stop"
        piece = self._piece(token)
        self.hides = self.hides or not piece
        text = self.stream.feed(piece)
        cut = self.stream.stop_text is not None
        self.limited = self._limits.reached or (not cut and self._limits.over(text))
        if self.limited:
            return text, "length"
        return text, "stop" if cut else None

    def _piece(self, token: int) -> bytes:
        piece = self._model.piece(token)
        return self._model.marker(token).encode() if token in self._shown and not piece else piece

    def kept(self, tokens: Sequence[int]) -> tuple[int, str]:
        """How many of the reply's ``tokens`` are wholly in its text, and the text behind them."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        text, read, found, end = self.stream.text, 0, 0, 0
        for n, token in enumerate(tokens, 1):
            read += len(decoder.decode(self._piece(token)))
            if read > len(text):
                break
            if not decoder.getstate()[0]:
                found, end = n, read
        return found, text[end:]

    def finish(self) -> str:
        """See `StopRule.finish`."""
        text = self.stream.finish()
        self.limited = self.limited or self._limits.reached
        return text
