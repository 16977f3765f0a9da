"""Control tokens that a message spells, such as ``<s>`` in HTML, stay the text that was written.

A chat template mixes its own control tokens with the texts of users and tools, so its output alone
does not tell which of them were meant. Before it is rendered, every spelling of a control token in
those texts is broken by a sign that occurs in no text; behind the sign the tokenizer finds none.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from localspec.core.events import Message
from localspec.generation.runnable import RunnableModel

_SIGN = "\ufdd0"
"""A noncharacter: Unicode keeps it for uses inside a program."""
_BEFORE = "\ufdd1"
"""Stands for the text before a continued text. It is in no token but those of its bytes."""
_QUOTED = frozenset({"user", "tool"})
"""Roles whose messages hold texts of others. Templates look for markers in those of the model."""
_WINDOW = 2048
"""Characters that are searched at once. No other thread runs meanwhile, and a text made of the
beginnings of control tokens is slow: 0.6 s for a million characters."""


def begins_spaced(model: RunnableModel) -> bool:
    """Whether the tokenizer, such as SentencePiece, puts a space in front of a text."""
    first = model.tokenize("a", special=False)[:1]
    return any(model.piece(token).startswith(b" ") for token in first)


def continued(split: Callable[[str], list[int]], text: str) -> list[int]:
    """The tokens of a text that goes on behind another one, where no space is put."""
    before, found = split(_BEFORE), split(_BEFORE + text)
    return found[len(before) :] if found[: len(before)] == before else split(text)


class Quoting:
    """Breaks the spellings of one vocabulary's control tokens, and tokenizes what was broken."""

    def __init__(self, controls: Collection[str], tokenize: Callable[..., list[int]]) -> None:
        """``tokenize`` takes a text, and ``special`` and ``bos`` by name."""
        self._tokenize = tokenize
        spelled = sorted((re.escape(text) for text in controls if len(text) > 1), key=len)
        self._controls = re.compile("|".join(reversed(spelled))) if spelled else None
        self._longest = max(map(len, controls), default=0)

    def messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages with every control token in the texts of others broken."""
        return tuple(self._quoted(m) if m.role in _QUOTED else m for m in messages)

    def value(self, value: Any) -> Any:
        """A JSON value, such as a tool, with every control token in its texts broken."""
        match value:
            case str():
                return self._broken(value)
            case list():
                return [self.value(one) for one in value]
            case dict():
                return {self._broken(name): self.value(one) for name, one in value.items()}
        return value

    def _quoted(self, message: Message) -> Message:
        """The message with the texts between its pictures broken, and their places moved."""
        if not message.pictures:
            return replace(message, content=self._broken(message.content))
        text, begun, pictures = "", 0, []
        for picture in message.pictures:
            text += self._broken(message.content[begun : picture.at])
            begun = max(begun, picture.at)
            pictures.append(replace(picture, at=len(text)))
        text += self._broken(message.content[begun:])
        return replace(message, content=text, pictures=tuple(pictures))

    def _broken(self, text: str) -> str:
        text = text.replace(_SIGN, "\ufffd")
        if self._controls is None:
            return text
        while starts := [start for start, _ in self._spelled(text)]:
            # what is left of one may spell another
            cuts = [0, *(start + 1 for start in starts), len(text)]
            text = _SIGN.join(text[a:b] for a, b in itertools.pairwise(cuts))
        return text

    def _spelled(self, text: str) -> Iterator[tuple[int, int]]:
        """Where control tokens are spelled, from left to right, in steps that let others run."""
        assert self._controls is not None
        at = 0
        while at < len(text):
            end = at + _WINDOW
            found = self._controls.search(text, at, end + self._longest)
            if found is not None and found.start() < end:
                yield found.span()
                at = found.end()
            else:
                at = end
                time.sleep(0)

    def control_at(self, text: str, at: int) -> bool:
        """Whether a rendered text has a control token of the template at ``at``."""
        return self._controls is not None and self._controls.match(text, at) is not None

    def tokens(self, text: str, *, bos: bool) -> list[int]:
        """The tokens of a rendered text: control tokens where the template put them alone.

        The text between two of them is tokenized as ever, as a piece of its own.
        """
        if _SIGN not in text or self._controls is None:
            return self._tokenize(text, special=True, bos=bos)
        found: list[int] = []
        begun, end = 0, 0
        for start, after in [*self._spelled(text), (len(text),) * 2]:
            if _SIGN in text[end:start]:
                found += self._part(text[begun:end], special=True, bos=bos and not found)
                found += self._part(text[end:start], special=False, bos=bos and not found)
                begun = start
            end = after
        return found + self._part(text[begun:], special=True, bos=bos and not found)

    def continued(self, text: str, *, bos: bool) -> list[int]:
        """The tokens of a rendered text that goes on behind another one, see `continued`."""
        return continued(lambda text: self.tokens(text, bos=bos), text)

    def _part(self, text: str, *, special: bool, bos: bool) -> list[int]:
        return self._tokenize(plain(text), special=special, bos=bos) if text else []


def plain(text: str) -> str:
    """A rendered text as its reader wrote it."""
    return text.replace(_SIGN, "")
