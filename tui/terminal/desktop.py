"""The desktop: its clipboard through programs, its notifications through the terminal.

No terminal reports whether it has accepted OSC 52. That of macOS does not, and tmux only when
configured to; so clipboard programs are used as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from localspec.core.safe_text import safe_line

_PATIENCE = 2.0
"""Seconds that a program has to take the text."""


@dataclass(frozen=True, slots=True)
class ClipboardProgram:
    """A program that reads a text from stdin."""

    words: tuple[str, ...]
    encoding: str = "utf-8"


def programs(environment: Mapping[str, str], platform: str) -> Iterator[ClipboardProgram]:
    """Programs that reach the user's clipboard from here, the most reliable first."""
    remote = "SSH_CONNECTION" in environment
    if "TMUX" in environment:
        yield ClipboardProgram(("tmux", "load-buffer", "-w", "-"))
    if platform == "darwin" and not remote:
        yield ClipboardProgram(("pbcopy",))
    if (platform == "win32" or "WSL_DISTRO_NAME" in environment) and not remote:
        yield ClipboardProgram(("clip.exe",), "utf-16")
    if "WAYLAND_DISPLAY" in environment:
        yield ClipboardProgram(("wl-copy",))
    if "DISPLAY" in environment:
        yield ClipboardProgram(("xclip", "-selection", "clipboard"))
        yield ClipboardProgram(("xsel", "--clipboard", "--input"))
    if "TERMUX_VERSION" in environment:
        yield ClipboardProgram(("termux-clipboard-set",))


def copy(text: str) -> str | None:
    """Hand ``text`` to the first program that takes it; its name, or None. Blocks for a moment."""
    for program in programs(os.environ, sys.platform):
        path = shutil.which(program.words[0])
        if path is not None and _takes([path, *program.words[1:]], text.encode(program.encoding)):
            return program.words[0]
    return None


def _takes(command: list[str], data: bytes) -> bool:
    try:
        done = subprocess.run(
            command,
            input=data,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


_BELL = "\x07"
_LONGEST = 120
"""Characters of a notification."""
_OSC_9 = ("iTerm.app", "WezTerm", "ghostty", "WarpTerminal")
"""Values of ``TERM_PROGRAM`` that mean a terminal with notifications by OSC 9."""


def notification(title: str, text: str, environment: Mapping[str, str] | None = None) -> str:
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
