"""The user's editor, for longer messages."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


class EditorError(ValueError):
    """The editor cannot be used; the text is for the user."""


def command() -> list[str]:
    """The command of $VISUAL or $EDITOR, or the default editor of the system.

    Raises:
        EditorError: the editor is not installed.
    """
    default = "notepad" if sys.platform == "win32" else "vi"
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or default
    try:
        words = shlex.split(chosen)
    except ValueError:
        words = []
    if not words or shutil.which(words[0]) is None:
        raise EditorError(f"there is no editor {chosen!r}; set EDITOR to one that is installed")
    return words


def edited(text: str, words: list[str]) -> str:
    """``text`` after the user has edited it; waits for the editor to end.

    Raises:
        EditorError: the editor failed.
    """
    try:
        return _edited(text, words)
    except OSError as error:
        raise EditorError(f"cannot write a file for {words[0]}: {error.strerror}") from None


def _edited(text: str, words: list[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
        path = Path(folder) / "message.md"
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            done = subprocess.run([*words, str(path)], check=False)
        except OSError as error:
            raise EditorError(f"cannot start {words[0]}: {error.strerror}") from None
        if done.returncode != 0:
            raise EditorError(
                f"{words[0]} ended with status {done.returncode}; nothing was changed"
            )
        try:
            return path.read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError):
            raise EditorError(f"{words[0]} saved no readable text; nothing was changed") from None
