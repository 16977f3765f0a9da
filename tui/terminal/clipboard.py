"""The clipboard by programs of the system, where that of the terminal (OSC 52) may not be reached.

No terminal says whether it has taken what OSC 52 brings. That of macOS does not, and tmux only when
told to; so the programs that people have for it are asked as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_PATIENCE = 2.0
"""Seconds for a program to take the text."""


@dataclass(frozen=True, slots=True)
class Program:
    """One that takes a text on stdin."""

    words: tuple[str, ...]
    encoding: str = "utf-8"


def programs(environment: Mapping[str, str], platform: str) -> Iterator[Program]:
    """Those that reach a clipboard of the person from here, the surest first."""
    remote = "SSH_CONNECTION" in environment
    if "TMUX" in environment:
        yield Program(("tmux", "load-buffer", "-w", "-"))
    if platform == "darwin" and not remote:
        yield Program(("pbcopy",))
    if (platform == "win32" or "WSL_DISTRO_NAME" in environment) and not remote:
        yield Program(("clip.exe",), "utf-16")
    if "WAYLAND_DISPLAY" in environment:
        yield Program(("wl-copy",))
    if "DISPLAY" in environment:
        yield Program(("xclip", "-selection", "clipboard"))
        yield Program(("xsel", "--clipboard", "--input"))
    if "TERMUX_VERSION" in environment:
        yield Program(("termux-clipboard-set",))


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
