"""Separates the thinking of a reply from its answer while it is streamed."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.events import ReplyFormat
from localspec.grammar.tools import held_back
from localspec.serve.replies.reply_parts import Content, Part, Reasoning


def _first_of(text: str, markers: Sequence[str]) -> tuple[int, int]:
    """Where the first of the markers begins, and its length: the longest one that begins there;
    (-1, 0) if there is none.
    """
    found = [(at, -len(m)) for m in markers if (at := text.find(m)) >= 0]
    if not found:
        return -1, 0
    at, length = min(found)
    return at, -length


class ThinkingSplitter:
    """Takes the text of a reply in pieces. White space around the thinking belongs to no part."""

    def __init__(self, form: ReplyFormat) -> None:
        self._begin, *self._ends = form.thinking or ("",)
        self._held = ""
        self._state = "thinking" if form.thinks else "start" if self._begin else "answer"
        self._trim = form.thinks
        """Whether white space is left out, for what comes next begins a part."""

    @property
    def thinking(self) -> bool:
        """Whether the text so far ends inside the thinking."""
        return self._state == "thinking"

    def feed(self, text: str) -> list[Part]:
        """The parts that are known with this text."""
        self._held += text
        found: list[Part] = []
        if self._state == "start":
            self._start()
        if self._state == "thinking":
            found += self._thinking()
        if self._state == "answer":
            found += self._answer()
        return found

    def finish(self, *, cut: bool = False) -> list[Part]:
        """The rest, once no text follows. Where the reply was ``cut``, the beginning of a marker
        belongs to no part.
        """
        thinking, rest = self._state == "thinking", self._held
        self._held = ""
        if cut:
            waited_for = self._ends if thinking else (self._begin, *self._ends)
            rest = rest[: len(rest) - held_back(rest, *waited_for)]
        if thinking:
            rest = rest.strip() if self._trim else rest.rstrip()
            return [Reasoning(rest)] if rest else []
        if self._trim:
            rest = rest.lstrip()
        return [Content(rest)] if rest else []

    def _start(self) -> None:
        """Find out whether the reply begins with thinking."""
        said = self._held.lstrip()
        for marker in (self._begin, *sorted(self._ends, key=len, reverse=True)):
            if said.startswith(marker):
                self._held = said[len(marker) :]
                self._state = "thinking" if marker == self._begin else "answer"
                self._trim = True
                return
        if not any(marker.startswith(said) for marker in (self._begin, *self._ends)):
            self._state = "answer"

    def _thinking(self) -> list[Part]:
        if self._trim:
            self._held = self._held.lstrip()
            self._trim = not self._held
        at, length = _first_of(self._held, self._ends)
        if at >= 0:
            said, self._held = self._held[:at].rstrip(), self._held[at + length :]
            self._state, self._trim = "answer", True
        else:
            sure = self._held[: len(self._held) - held_back(self._held, *self._ends)]
            said = sure.rstrip()  # the thinking may end here
            self._held = self._held[len(said) :]
        return [Reasoning(said)] if said else []

    def _answer(self) -> list[Part]:
        said, self._held = self._held, ""
        if self._trim:
            said = said.lstrip()
            self._trim = not said
        return [Content(said)] if said else []
