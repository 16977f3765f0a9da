"""Longer messages: the user's editor, and marks in the place of large pastes."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tui.render.text import line_count

_LINES = 12
_CHARACTERS = 1500


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
    folder, kept = Path(tempfile.mkdtemp(prefix="localspec-")), False
    path, given = folder / "message.md", text.encode("utf-8", "replace")
    try:
        path.write_bytes(given)
        kept = True  # what is written is the only copy, whatever is raised here
        try:
            with _keys_are_the_editors():
                done = subprocess.run([*words, str(path)], check=False)
        except OSError as error:
            raise EditorError(f"cannot start {words[0]}: {error.strerror}") from None
        written = _content(path)
        failure = f"ended with status {done.returncode}"
        if done.returncode == 0:
            try:
                if written is not None:
                    said = written.decode("utf-8").replace("\r\n", "\n").rstrip("\n")
                    kept = False
                    return said
            except UnicodeDecodeError:
                pass
            failure = "saved no readable text"
        unchanged = written in (None, given)
        where = "nothing was changed" if unchanged else f"what was written is in {path}"
        raise EditorError(f"{words[0]} {failure}; {where}")
    finally:
        if not kept or _content(path) in (None, given):
            shutil.rmtree(folder, ignore_errors=True)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


@contextlib.contextmanager
def _keys_are_the_editors() -> Iterator[None]:
    """The keys that interrupt and quit are for the editor, but the terminal sends them to all its
    programs. They are not ignored, which the editor would inherit.
    """
    numbers = {signal.SIGINT, getattr(signal, "SIGQUIT", signal.SIGINT)}
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Pastes:
    """The pasted texts of one message, by their marks."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._count = 0

    @staticmethod
    def is_large(text: str) -> bool:
        """Whether a text is replaced by a mark."""
        return text.count("\n") >= _LINES or len(text) > _CHARACTERS

    def fold(self, text: str) -> str:
        """A mark for a large text; a small text unchanged."""
        if not self.is_large(text):
            return text
        lines = line_count(text)
        self._count += 1
        size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        mark = f"[pasted text {self._count}, {size}]"
        self._texts[mark] = text
        return mark

    def unfold(self, text: str) -> str:
        """``text`` with the pasted texts in place of their marks."""
        if not self._texts:
            return text
        marks = "|".join(map(re.escape, self._texts))  # at once: a paste may hold another mark
        return re.sub(marks, lambda found: self._texts[found[0]], text)

    def within(self, text: str) -> tuple[str, ...]:
        """The pasted texts of which ``text`` has the mark, or which stand in it."""
        return tuple(p for mark, p in self._texts.items() if mark in text or p in text)
