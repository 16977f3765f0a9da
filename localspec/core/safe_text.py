"""The door for every text that localspec did not write, on its way to a terminal, log or picture.

Names of files, metadata, errors of chat templates, answers of the Hub, replies and imported chats
may hold anything: escape sequences set a terminal's title or fill the clipboard, bidirectional
controls show a text in another order than it has, and tags hold a text that nobody sees. Here such
characters become a visible sign.
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
_TAGS = "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
"""Characters without a picture: texts can be made of them that nobody sees and everybody copies."""
_CHOICES = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Variation selectors: one chooses the picture of the character before it, more hide texts."""
_ZERO = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u2065\u206a-\u206f"
    "\u3164\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
"""Characters without width (Unicode's Default_Ignorable_Code_Point, without those that are dealt
with above)."""
_NONE = _CHOICES + _ZERO
"""All that nobody sees: one or two are spelling, as the two within an emoji of several persons, and
more hide texts, of whatever kinds they are."""
_MARKS = "\u061c\u200c-\u200f"
"""Joiners and marks of direction: two of these may follow a choice of an emoji's picture, as where
text from right to left goes on; that is the longest row of what nobody sees."""
_FLAG = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f?"
"""A flag of a region, such as Scotland's: its few tags belong to it."""
_AFTER_EMOJI = f"(?<=[^{_NONE}][\ufe0e\ufe0f][{_MARKS}])[{_MARKS}]"
_UNSEEN = (
    f"(?<=[{_CHOICES}])[{_CHOICES}]|(?<=[{_NONE}][{_NONE}])(?!{_AFTER_EMOJI})[{_NONE}]|[{_TAGS}]"
)
_BEGUN = re.compile(
    "(?:\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{0,6}"
    f"|[^{_NONE}\r]?[{_NONE}]{{0,3}})\\Z"
)
_HARMFUL_PATTERN = re.compile(f"({_FLAG})|{_UNSEEN}|[{_HARMFUL}]")
_LINE_ENDS = re.compile("[\x0b\x0c\x85\u2028\u2029]")
_ANY = re.compile(f"({_FLAG})|{_UNSEEN}|[{_HARMFUL}\r\x0b\x0c\x85\u2028\u2029]")
_UNSEEN_PATTERN = re.compile(f"({_FLAG})|{_UNSEEN}")
_ZERO_PATTERN = re.compile(f"[{_ZERO}]")
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
    return _HARMFUL_PATTERN.sub(_flag_or_sign, text)


def _flag_or_sign(found: re.Match[str]) -> str:
    return found[1] or SIGN


def begun(text: str) -> str:
    """The end of a text that decides about the text after it: a flag that may not be whole yet, or
    its last character and those after it that nobody sees.
    """
    found = _BEGUN.search(text)
    return found[0] if found else ""


def safe_line(text: str) -> str:
    """A text of one line, as a name or a message: every invisible character becomes visible, and
    line ends and tabs become spaces.
    """
    if text.isprintable() and not (_UNSEEN_PATTERN.search(text) or _ZERO_PATTERN.search(text)):
        return text
    pieces = re.split(f"({_FLAG})", text.replace("\r\n", " "))
    for i in range(0, len(pieces), 2):  # between the flags
        seen = _UNSEEN_PATTERN.sub(_flag_or_sign, pieces[i])
        pieces[i] = "".join(_in_line(c) for c in seen)
    return "".join(pieces)


def _in_line(character: str) -> str:
    if character.isspace():
        return character if unicodedata.category(character) == "Zs" else " "
    hidden = unicodedata.category(character) in _HIDDEN or _ZERO_PATTERN.match(character)
    return SIGN if hidden and character not in JOINERS else character


def is_safe(text: str) -> bool:
    """Whether `safe_text` would leave a text as it is."""
    return all(found[1] for found in _ANY.finditer(text))


def without_harmful(text: str) -> str:
    """A text of one line without the characters that `safe_text` replaces."""
    return _ANY.sub(lambda found: found[1] or "", text)


def escape_json(text: str) -> str:
    """JSON whose texts hold no character that a terminal obeys: each as an escape of JSON's own.

    The decoded value is unchanged.
    """
    return _ANY.sub(lambda found: found[1] or _escaped(found[0]), text)


def _escaped(character: str) -> str:
    raw = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{raw[i : i + 4]}" for i in range(0, len(raw), 4))


def is_safe_name(name: str) -> bool:
    """Whether a name (of a file, a repository) holds only characters that are seen."""
    return safe_line(name) == name
