"""The text of PDFs, notebooks and other files, see `localspec.media.document_child`."""

from __future__ import annotations

import atexit
import functools
from pathlib import Path

from localspec.core.errors import UnreadableError
from localspec.core.processes.bounded import BoundedProcess, Bounds, TooMuchError

LARGEST_TEXT = 1 << 20
"""Bytes of a text file: more fits into no context."""
LARGEST_DOCUMENT = 64 << 20
"""Bytes of a PDF or a notebook, most of which are pictures."""
_SECONDS = 30.0
_MEMORY = 1 << 30


def is_document(path: Path) -> bool:
    """Whether a file is of a kind that is converted to text."""
    return path.suffix.lower() in {".pdf", ".ipynb"}


def text_of(path: Path) -> str:
    """The text of a file. Blocks.

    Raises:
        UnreadableError: it has none, or too much.
        OSError: it cannot be read.
    """
    most = LARGEST_DOCUMENT if is_document(path) else LARGEST_TEXT
    if path.stat().st_size > most:
        raise UnreadableError(f"{path.name} is larger than {most >> 20} MB; take a part of it")
    if is_document(path):
        return _converted(path)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableError(f"{path.name} is not text, and no PDF or notebook") from None


def _converted(path: Path) -> str:
    try:
        answer = _reader().ask({"path": str(path.resolve())}, lambda: False)
    except TooMuchError as error:
        raise UnreadableError(f"{path.name} takes too much to be read: {error}") from None
    if "refused" in answer:
        raise UnreadableError(f"{path.name}: {answer['refused']}")
    text = str(answer["text"])
    if not text.strip() and path.suffix.lower() == ".pdf":
        raise UnreadableError(f"{path.name} has pictures of its pages and no text")
    return text


@functools.cache
def _reader() -> BoundedProcess:
    told = f"more than {_SECONDS:.0f} seconds, or {_MEMORY >> 20} MB of memory"
    bounds = Bounds(_SECONDS, _MEMORY, told=told)
    found = BoundedProcess("localspec.media.document_child", "reads documents", lambda: bounds)
    atexit.register(found.close)
    return found


__all__ = ["LARGEST_DOCUMENT", "LARGEST_TEXT", "UnreadableError", "is_document", "text_of"]
