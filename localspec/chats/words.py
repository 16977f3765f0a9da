"""Search terms of the user as queries for SQLite."""

from __future__ import annotations

import re

_TERM = re.compile(r'"([^"]*)"?|(\S+)')
_AROUND = 60
"""Characters of an excerpt on either side."""


def terms(query: str) -> list[str]:
    """Words, and phrases in quotes; only those that hold a letter or digit."""
    found = (match[1] or match[2] or "" for match in _TERM.finditer(query))
    return [term for term in found if any(c.isalnum() for c in term)]


def has_all(text: str, query: str) -> bool:
    """Whether a text has all terms of ``query``, whatever their case."""
    text, words = text.casefold(), terms(query.casefold())
    return bool(words) and all(word in text for word in words)


def match(query: str) -> str:
    """An FTS5 expression for all terms, the last one as a beginning; "" where there is none."""
    quoted = ['"' + term.replace('"', '""') + '"' for term in terms(query)]
    if quoted and not query.rstrip().endswith('"'):
        quoted[-1] += "*"
    return " ".join(quoted)


def like(query: str) -> str:
    """A pattern for LIKE, whose escape is the backslash."""
    inner = re.sub(r"([%_\\])", r"\\\1", query.strip())
    return f"%{inner}%"


def excerpt(text: str, query: str) -> str:
    """One line of ``text`` around the first term, or its beginning."""
    places = [at for term in [query.strip(), *terms(query)] if (at := _find(text, term)) >= 0]
    at = places[0] if places else 0
    start, end = max(0, at - _AROUND), min(len(text), at + _AROUND)
    line = " ".join("".join(c if c.isprintable() else " " for c in text[start:end]).split())
    return f"{'…' if start else ''}{line}{'…' if end < len(text) else ''}"


def _find(text: str, term: str) -> int:
    found = re.search(re.escape(term), text, re.IGNORECASE) if term else None
    return found.start() if found else -1
