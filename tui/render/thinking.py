"""The boundary between the thinking and the answer of a reply."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.core.events import Token

_OPEN = re.compile(r"\s*<(think|thinking)>")
_CLOSE = re.compile(r"</(think|thinking)>\s*")


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


def without(text: str) -> str:
    """The answer of a reply alone."""
    found = thought(text)
    return text if found is None else text[found.answer :]
