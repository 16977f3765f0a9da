"""What a message names with ``@path`` as it is written."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

_NAME = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')
"""A name with spaces is quoted."""
AFTER = ".,;:!?)'\""
"""Punctuation after a name that may not belong to it."""
# Both end at the first line that begins with their fence, or are none. A pattern that looked for a
# later end would take words between two blocks for a file, and read a long text once per fence.
_BLOCK = re.compile(
    r"(?:\A|\n\n)([^\n]+):\n(`{3,})\n(?:(?!\2)[^\n]*+\n)*+\2(?=\n\n|\s*\Z)",
)
"""A file as it is attached, see `Attachment.block`: its fence is longer than any in it."""
_CODE = re.compile(r"^(`{3,})[^\n`]*\n(?:(?!\1)[^\n]*+\n)*+\1`*[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)  # without slots, for what is found once
class Draft:
    """A message as it is written. Only its own words name files: none in pasted texts, in files
    that it has already, or in code; none of those in the question that it changes.
    """

    text: str
    pasted: tuple[str, ...] = ()
    """Texts in it that the composer does not show."""
    edited: str = ""
    """The question that it changes: what that named is in it, or was meant as words."""

    @property
    def begins_pasted(self) -> bool:
        """Whether its beginning is pasted: the composer shows no command there."""
        pasted = filter(None, map(str.strip, self.pasted))
        return any(self.text.strip().startswith(text) for text in pasted)

    @property
    def slow(self) -> bool:
        """Whether it names what takes a while to read: a folder, a PDF, a notebook."""
        endings = (".pdf", ".ipynb", "/", os.sep)
        return any(name.rstrip(AFTER).lower().endswith(endings) for name in self.names())

    def names(self) -> list[str]:
        """What it names as files, once each, with the punctuation after it."""
        if "@" not in self.text:
            return []
        known = {(m[1] or m[2]).rstrip(AFTER) for m in _NAME.finditer(self.edited)}
        # A file that was taken out of it is wanted as it is now.
        before = _attached(self.edited)
        known = {name for name in known if self.has(name) or not _among(before, name)}
        names = dict.fromkeys(m[1] or m[2] for m in self.words(self.text))
        return [name for name in names if name.rstrip(AFTER) not in known]

    def words(self, text: str) -> list[re.Match[str]]:
        """The words of ``text``, which is that of the message, that may name files."""
        quoted = [m.span() for pattern in (_BLOCK, _CODE) for m in pattern.finditer(text)]
        for pasted in filter(None, map(str.strip, self.pasted)):
            quoted += _places(text, pasted)
        quoted.sort()
        ends = [0, *accumulate((end for _, end in quoted), max)]  # of all that begin before one
        found = _NAME.finditer(text)
        return [m for m in found if ends[bisect_left(quoted, (m.end(), 0))] <= m.start()]

    def has(self, name: str) -> bool:
        """Whether a file, or files of a folder, are attached to it already."""
        return _among(self._had, name)

    @cached_property
    def _had(self) -> list[str]:
        return _attached(self.text)


def _places(text: str, part: str) -> Iterator[tuple[int, int]]:
    """Where ``part`` begins and ends in ``text``. A pattern as long as a paste would take seconds
    to compile.
    """
    at = text.find(part)
    while at >= 0:
        end = at + len(part)
        yield at, end
        at = text.find(part, end)


def _attached(text: str) -> list[str]:
    """The sorted names of the files that are in a message."""
    return sorted(m[1] for m in _BLOCK.finditer(text))


def _among(names: list[str], name: str) -> bool:
    """Whether sorted names have one, or one below it as a folder."""
    folder = name.rstrip("/" + os.sep) + "/"
    at, below = bisect_left(names, name), bisect_left(names, folder)
    return names[at : at + 1] == [name] or "".join(names[below : below + 1]).startswith(folder)


def names_files(text: str) -> bool:
    """Whether a message may name files."""
    return "@" in text and _NAME.search(text) is not None


def fenced(content: str) -> str:
    """A code block whose fence is longer than any run of backticks in ``content``."""
    longest = max((len(run) for run in re.findall(r"`{3,}", content)), default=2)
    fence = "`" * (longest + 1)
    end = "" if content.endswith("\n") else "\n"
    return f"{fence}\n{content}{end}{fence}"
