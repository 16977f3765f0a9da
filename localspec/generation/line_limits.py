"""Ends of a reply that depend on its lines: too little indentation, and a time limit.

llama-server's ``n_indent`` and ``t_max_predict_ms``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from localspec.core.infill import Infill


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
        """Those of a request."""
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
