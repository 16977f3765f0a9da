"""Text of models and users: made safe to show, and a reply's thinking told from its answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from localspec.core.events import Token
from localspec.core.safe_text import is_safe, safe_text, without_harmful

_OPEN = re.compile(r"\s*<(think|thinking)>")
_CLOSE = re.compile(r"</(think|thinking)>\s*")


def plain(text: str) -> str:
    """``text`` with control characters and odd line separators made harmless.

    A model may emit anything; escape sequences must not reach the terminal, and what counts as a
    line must be the same for everyone.
    """
    return safe_text(text).replace("\t", "    ")


def line_count(text: str) -> int:
    """The lines of a text; a newline at its end begins none."""
    return text.count("\n") + (not text.endswith("\n"))


class SafeLines(LineFilter):
    """Removes control characters.

    Widgets replace such characters (`tui.render.text.plain`); here they are removed where a widget
    does not: they have no width, so the line keeps its length.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments without harmful characters; Textual's own control segments stay."""
        del background
        if all(segment.control or is_safe(segment.text) for segment in segments):
            return segments
        return [
            segment
            if segment.control
            else Segment(without_harmful(segment.text), segment.style, segment.control)
            for segment in segments
        ]


@dataclass(frozen=True, slots=True)
class Thought:
    """The thinking of a reply, up to ``answer``."""

    text: str
    answer: int
    """Index of the answer's first character; the text's length while there is none."""
    open: bool
    """Whether its end has not arrived."""


def thought(text: str) -> Thought | None:
    """The thinking at the beginning of a reply; None where there is none.

    Some templates open the thinking in the prompt, so a reply may contain only its end.
    """
    start = _OPEN.match(text)
    at = text.find("</think", start.end() if start else 0)
    end = _CLOSE.search(text, at) if at >= 0 else None
    if end is not None:
        return Thought(text[start.end() if start else 0 : end.start()].strip(), end.end(), False)
    if start is not None:
        return Thought(text[start.end() :].strip(), len(text), True)
    return None


def tokens_until(tokens: Sequence[Token], length: int) -> int:
    """Number of tokens of the first ``length`` characters."""
    for i, token in enumerate(tokens):
        if length <= 0:
            return i
        length -= len(token.text)
    return len(tokens)


def without_thinking(text: str) -> str:
    """The answer of a reply alone."""
    found = thought(text)
    return text if found is None else text[found.answer :]
