"""Text of models and users, made safe to show."""

from __future__ import annotations

from localspec.core.safe_text import safe_text


def plain(text: str) -> str:
    """``text`` with control characters and odd line separators made harmless.

    A model may emit anything; escape sequences must not reach the terminal, and what counts as a
    line must be the same for everyone.
    """
    return safe_text(text).replace("\t", "    ")
