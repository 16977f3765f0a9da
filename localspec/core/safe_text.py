"""The door for every text that localspec did not write, on its way to a terminal, log or picture.

Names of files, metadata, errors of chat templates, answers of the Hub, replies and imported chats
may hold anything: escape sequences set a terminal's title or fill the clipboard, bidirectional
controls show a text in another order than it has. Here such characters become a visible sign.
Nothing else removes them, and nothing that shows a text goes round this module; a file or a pipe
that asked for data gets the text as it is.
"""

from __future__ import annotations

import re
import unicodedata

SIGN = "\N{REPLACEMENT CHARACTER}"
"""Stands for each character that was made harmless."""
_HARMFUL = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb"
)
"""Control characters, bidirectional embeddings, overrides and isolates, halves of characters."""
_HARMFUL_PATTERN = re.compile(f"[{_HARMFUL}]")
_LINE_ENDS = re.compile("[\x0b\x0c\x85\u2028\u2029]")
_ANY = re.compile(f"[{_HARMFUL}\r\x0b\x0c\x85\u2028\u2029]")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
JOINERS = frozenset("\u200c\u200d")
"""Parts of emoji, and of words in Persian and Indic scripts."""


def safe_text(text: str) -> str:
    """A text of several lines: tabs stay, and line ends of every kind become line feeds.

    Marks of direction that only qualify their neighbours (U+200E, U+200F, U+061C) stay: replies in
    Arabic and Hebrew need them.
    """
    if is_safe(text):
        return text
    text = _LINE_ENDS.sub("\n", text.replace("\r", ""))
    return _HARMFUL_PATTERN.sub(SIGN, text)


def safe_line(text: str) -> str:
    """A text of one line, as a name or a message: every invisible character becomes visible, and
    line ends and tabs become spaces.
    """
    if text.isprintable():
        return text
    return "".join(_in_line(c) for c in text.replace("\r\n", " "))


def _in_line(character: str) -> str:
    if character.isspace():
        return character if unicodedata.category(character) == "Zs" else " "
    hidden = unicodedata.category(character) in _HIDDEN and character not in JOINERS
    return SIGN if hidden else character


def is_safe(text: str) -> bool:
    """Whether `safe_text` would leave a text as it is."""
    return _ANY.search(text) is None


def without_harmful(text: str) -> str:
    """A text of one line without the characters that `safe_text` replaces."""
    return _ANY.sub("", text)


def escape_json(text: str) -> str:
    """JSON whose texts hold no character that a terminal obeys: each as an escape of JSON's own.

    The decoded value is unchanged.
    """
    return _ANY.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def is_safe_name(name: str) -> bool:
    """Whether a name (of a file, a repository) holds only characters that are seen."""
    return safe_line(name) == name


__all__ = [
    "JOINERS",
    "SIGN",
    "escape_json",
    "is_safe",
    "is_safe_name",
    "safe_line",
    "safe_text",
    "without_harmful",
]
