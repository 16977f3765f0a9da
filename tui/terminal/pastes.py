"""What is pasted is text: no part of it may reach Textual's parser as a key.

Terminals put marks around a paste (bracketed paste). Inside of them Textual's parser still takes an
escape, and up to 31 characters after it, as keys: line ends would send what was pasted.
"""

from __future__ import annotations

import re

_BEGIN, _END = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|[()][0-2AB])?")
"""A sequence of ECMA-48 that moves or colours, one that chooses characters, or an escape alone."""
_BEGUN = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}|[()])?\Z")
"""One that the next characters may complete."""


class PasteFilter:
    """Removes the escape sequences of pastes from what a terminal sends, cut anywhere."""

    def __init__(self) -> None:
        self._inside = False
        self._before = ""
        """Outside of a paste: the last characters, which may be a part of `_BEGIN`. Inside: the
        beginning of a sequence, which was not passed on yet.
        """

    def clean(self, text: str) -> str:
        """The text with pastes that have no escapes but their marks."""
        found: list[str] = []
        while text:
            text = self._paste(text, found) if self._inside else self._keys(text, found)
        return "".join(found)

    def _keys(self, text: str, found: list[str]) -> str:
        """Take all until a paste has begun; returns the rest."""
        known = self._before + text
        at = known.find(_BEGIN)
        if at < 0:
            self._before = known[1 - len(_BEGIN) :]
            found.append(text)
            return ""
        end = at + len(_BEGIN) - len(self._before)
        self._inside, self._before = True, ""
        found.append(text[:end])
        return text[end:]

    def _paste(self, text: str, found: list[str]) -> str:
        """Take all until a paste has ended; returns the rest."""
        text, self._before, at = self._before + text, "", 0
        for sequence in _SEQUENCE.finditer(text):
            start, end = sequence.span()
            found.append(text[at:start])
            if sequence[0] == _END:
                self._inside = False
                found.append(_END)
                return text[end:]
            if _BEGUN.match(text, start):
                self._before = text[start:]
                return ""
            at = end
        found.append(text[at:])
        return ""
