"""Control tokens that a message spells, such as ``<s>`` in HTML, stay the text that was written.

A chat template mixes its own control tokens with the texts of users and tools, so its output alone
does not tell which of them were meant. Before it is rendered, every spelling of a control token in
those texts is broken by a sign that occurs in no text; behind the sign the tokenizer finds none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from localspec.core.events import Message

_SIGN = "\ufdd0"
"""A noncharacter: Unicode keeps it for uses inside a program."""
_BEFORE = "\ufdd1"
"""Stands for the text before a continued text. It is in no token but those of its bytes."""
_QUOTED = frozenset({"user", "tool"})
"""Roles whose messages hold texts of others. Templates look for markers in those of the model."""


class Quoting:
    """Breaks the spellings of one vocabulary's control tokens, and tokenizes what was broken."""

    def __init__(self, controls: Collection[str], tokenize: Callable[..., list[int]]) -> None:
        """``tokenize`` takes a text, and ``special`` and ``bos`` by name."""
        self._tokenize = tokenize
        spelled = sorted((re.escape(text) for text in controls if len(text) > 1), key=len)
        self._controls = re.compile("|".join(reversed(spelled))) if spelled else None

    def messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages with every control token in the texts of others broken."""
        return tuple(
            replace(m, content=self._broken(m.content)) if m.role in _QUOTED else m
            for m in messages
        )

    def _broken(self, text: str) -> str:
        text = text.replace(_SIGN, "\ufffd")
        if self._controls is None:
            return text
        while self._controls.search(text):  # what is left of one may spell another
            text = self._controls.sub(lambda found: found[0][0] + _SIGN + found[0][1:], text)
        return text

    def tokens(self, text: str, *, bos: bool) -> list[int]:
        """The tokens of a rendered text: control tokens where the template put them alone.

        The text between two of them is tokenized as ever, as a piece of its own.
        """
        if _SIGN not in text or self._controls is None:
            return self._tokenize(text, special=True, bos=bos)
        found: list[int] = []
        begun, end = 0, 0
        for start, after in [*(m.span() for m in self._controls.finditer(text)), (len(text),) * 2]:
            if _SIGN in text[end:start]:
                found += self._part(text[begun:end], special=True, bos=bos and not found)
                found += self._part(text[end:start], special=False, bos=bos and not found)
                begun = start
            end = after
        return found + self._part(text[begun:], special=True, bos=bos and not found)

    def continued(self, text: str) -> list[int]:
        """The tokens of a rendered text that goes on behind another one.

        SentencePiece puts a space in front of a text, and there is none inside of one.
        """
        before = self._tokenize(_BEFORE, special=True, bos=False)
        found = self.tokens(_BEFORE + text, bos=False)
        whole = found[: len(before)] == before
        return found[len(before) :] if whole else self.tokens(text, bos=False)

    def _part(self, text: str, *, special: bool, bos: bool) -> list[int]:
        return self._tokenize(plain(text), special=special, bos=bos) if text else []


def plain(text: str) -> str:
    """A rendered text as its reader wrote it."""
    return text.replace(_SIGN, "")


__all__ = ["Quoting", "plain"]
