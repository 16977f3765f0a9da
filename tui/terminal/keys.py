"""Key sequences of terminals that Textual 8.2 does not know."""

from __future__ import annotations

from enum import Enum
from typing import Any

from textual import _ansi_sequences


class _Key(Enum):
    ALT_ENTER = "alt+enter"


def teach() -> None:
    """Teach Textual the Alt+Enter of terminals without the Kitty protocol, else an Enter."""
    sequences: dict[str, Any] = _ansi_sequences.ANSI_SEQUENCES_KEYS  # type: ignore[assignment]
    sequences.setdefault("\x1b\r", (_Key.ALT_ENTER,))


def named(key: str) -> str:
    """A key's usual name; Shift+Enter as xterm and tmux send it comes with a bare return."""
    return key.replace("\r", "enter")
