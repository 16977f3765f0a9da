"""The bell and desktop notifications, for a terminal that nobody looks at."""

from __future__ import annotations

import os
from collections.abc import Mapping

from localspec.core.safe_text import safe_line

_BELL = "\x07"
_LONGEST = 120
"""Characters of a notification."""
_OSC_9 = ("iTerm.app", "WezTerm", "ghostty", "WarpTerminal")
"""Values of ``TERM_PROGRAM`` that mean a terminal with notifications by OSC 9."""


def sequence(title: str, text: str, environment: Mapping[str, str] | None = None) -> str:
    """What is written to the terminal: a bell, and a notification where this terminal is known to
    show one. Others might print the text of one that they do not know.
    """
    known = os.environ if environment is None else environment
    title, text = (safe_line(part)[:_LONGEST].replace(";", ",") for part in (title, text))
    term = known.get("TERM", "")
    if known.get("TMUX") or term.startswith(("screen", "tmux")):
        return _BELL  # it keeps all else to itself
    if known.get("KITTY_WINDOW_ID") or term == "xterm-kitty":
        return f"\x1b]99;i=1:d=0;{title}\x1b\\\x1b]99;i=1:p=body;{text}\x1b\\{_BELL}"
    if known.get("TERM_PROGRAM") in _OSC_9:
        return f"\x1b]9;{title}: {text}\x1b\\{_BELL}"
    if term.startswith(("foot", "rxvt-unicode")):
        return f"\x1b]777;notify;{title};{text}\x1b\\{_BELL}"
    return _BELL


__all__ = ["sequence"]
