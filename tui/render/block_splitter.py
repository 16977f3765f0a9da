"""Splits Markdown that is still being written into closed top-level blocks and an open rest.

A closed block never changes again, whatever follows, so it is rendered once. The rest, which
another line could still turn into something else, is shown as plain text until it closes. The
splitter reads each line once and knows just enough block structure to be conservative: it
may close a block later than CommonMark would, never earlier.
"""

from __future__ import annotations

import enum
import re

_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}([ \t]|$)")
_QUOTE = re.compile(r" {0,3}>")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_ITEM = re.compile(r"( *)([-+*]|\d{1,9}[.)])( +|$)(.*)")
_INTERRUPTING_ITEM = re.compile(r" {0,3}([-+*]|0{0,8}1[.)]) +\S")
_UNDERLINE = re.compile(r" {0,3}(-+|=+)$")
_NO_ITEM = 1000
"""A content column that no line reaches: the list item ends."""


class _State(enum.Enum):
    BETWEEN = enum.auto()
    """After a closed block: the next line starts another."""
    TEXT = enum.auto()
    """A paragraph, quote, table or heading with underline: a blank line ends it."""
    FENCE = enum.auto()
    """A fenced code block: only its closing fence ends it."""
    LIST = enum.auto()
    """A list or indented code: continues after blank lines if the next line belongs to it."""
    UNSURE = enum.auto()
    """A rare case that needs a whole parser; the block stays open."""


class BlockSplitter:
    """Takes text as it arrives; `feed` returns closed blocks, `rest` is still open."""

    def __init__(self) -> None:
        self._block: list[str] = []  # complete lines of the open block
        self._line = ""  # the line still being written
        self._state = _State.BETWEEN
        self._fence = ""  # the run of ` or ~ that opened the code block
        self._column = _NO_ITEM  # where the content of the outermost list item starts
        self._empty_item = False  # the last line was a list marker and nothing else
        self._lazy = False  # the item may have ended, or its paragraph continues
        self._blank = False  # the last line was blank

    @property
    def rest(self) -> str:
        """The text that is not closed."""
        return "".join(self._block) + self._line

    def feed(self, text: str) -> str:
        """Add text; returns the source of the blocks that it closed."""
        closed: list[str] = []
        *lines, last = (self._line + text).split("\n")
        for line in lines:
            self._line = ""
            closed.append(self._take(line))
        self._line = last
        if self._surely_starts_a_block(last):
            closed.append(self._close())
        return "".join(closed)

    def _close(self) -> str:
        text = "".join(self._block)
        self._block.clear()
        self._state = _State.BETWEEN
        self._blank = False
        return text

    def _surely_starts_a_block(self, start: str) -> bool:
        """Whether an unfinished line after a blank one can no longer be part of the list."""
        return (
            self._state is _State.LIST
            and self._blank
            and bool(start)
            and start[0] not in " \t-+*0123456789"
        )

    def _take(self, raw: str) -> str:
        """Add a complete line; returns the source of the blocks that it closed."""
        line = raw.expandtabs(4).rstrip(" ")
        closed = ""
        if self._state in (_State.TEXT, _State.LIST) and line and self._ends_before(line):
            closed = self._close()
        if self._state is _State.BETWEEN and not line:
            return closed + raw + "\n"  # blank lines go with the block before
        self._block.append(raw + "\n")
        ended = self._open(line) if self._state is _State.BETWEEN else self._go_on(line)
        self._blank = not line
        return closed + self._close() if ended else closed

    def _open(self, line: str) -> bool:
        """Set the state for the first line of a block; whether the block ends with it."""
        if fence := _FENCE.match(line):
            self._state, self._fence = _State.FENCE, fence[1]
        elif _HEADING.match(line) or _RULE.match(line):
            return True
        elif line.startswith("    "):
            self._state, self._column = _State.LIST, _NO_ITEM
            self._empty_item = self._lazy = False
        elif _ITEM.match(line):
            self._state, self._column = _State.LIST, _NO_ITEM
            self._item(line)
        else:
            self._state = _State.TEXT
        return False

    def _go_on(self, line: str) -> bool:
        """Adjust the state for a further line of the open block; whether the block ends with it."""
        if self._state is _State.FENCE:
            return self._closes_fence(line)
        if self._state is _State.TEXT:
            if _RULE.match(line):
                return True
            if _indent(line) >= 4 or _ITEM.match(line) or _UNDERLINE.match(line):
                self._state = _State.UNSURE  # plain text in a paragraph, but not after a table
            return not line
        if self._state is _State.LIST and line:
            self._follow(line)
        elif self._empty_item:  # an item may start with one blank line, not with two
            self._column = _NO_ITEM
        return False

    def _follow(self, line: str) -> None:
        """A further line of a list."""
        if _indent(line) < min(self._column, 4):
            if not _ITEM.match(line):
                self._lazy = True
                return
            if self._lazy and not self._blank and not _INTERRUPTING_ITEM.match(line):
                self._state = _State.UNSURE
        elif self._lazy and _FENCE.match(line):
            self._state = _State.UNSURE
        self._item(line)

    def _item(self, line: str) -> None:
        """Follow the content column of the outermost list."""
        self._empty_item = False
        item = _ITEM.match(line)
        if item is None or _indent(line) >= min(self._column, 4):
            return
        indent, marker, space, content = item.groups()
        width = len(space) if content and len(space) < 5 else 1
        self._column = len(indent) + len(marker) + width
        self._lazy = False
        self._empty_item = not content

    def _ends_before(self, line: str) -> bool:
        """Whether the open block ends before this line, which is not blank."""
        if self._state is _State.TEXT:
            starts = (_FENCE, _HEADING, _INTERRUPTING_ITEM)
            return any(pattern.match(line) for pattern in starts)
        if _indent(line) >= min(self._column, 4):
            return False
        if _FENCE.match(line) or _HEADING.match(line) or _QUOTE.match(line):
            return True
        if _RULE.match(line):  # or the underline of a heading, where the list may be a paragraph
            return self._column != _NO_ITEM or self._blank or not _UNDERLINE.match(line)
        return self._blank and not _ITEM.match(line)

    def _closes_fence(self, line: str) -> bool:
        run = line.strip(" ")
        return _indent(line) < 4 and len(run) >= len(self._fence) and set(run) == {self._fence[0]}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
