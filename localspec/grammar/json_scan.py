"""Finds the end of a JSON object in a text that comes in pieces."""

from __future__ import annotations

import re

_NEXT = re.compile(r'["\\{}\[\]]')


class JSONScan:
    """Follows one object or array from its first bracket to its last."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.over = False
        """Whether the last bracket was read."""

    def feed(self, text: str) -> int:
        """Read a piece; how many of its characters belong to the object."""
        at = 0
        while at < len(text) and not self.over:
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = _NEXT.search(text, at)
            if found is None:
                return len(text)
            at = found.end()
            self._take(found[0])
        return at

    def _take(self, character: str) -> None:
        if self._in_string:
            self._escaped = character == "\\"
            self._in_string = character != '"'
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            self.over = self._depth == 0
