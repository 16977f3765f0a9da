"""A text and its tokens. Without numpy: an interface starts sooner that way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tokenized:
    """A text as the target's vocabulary splits it."""

    text: str
    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    """The text of each token; control tokens by their name. Bytes that are not UTF-8 by themselves,
    parts of a character, are lone surrogates (PEP 383)."""
