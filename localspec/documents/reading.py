"""The text of one file, for a model."""

from __future__ import annotations

import atexit
import functools
import json
from pathlib import Path
from typing import Any

from localspec.errors import UnreadableError
from localspec.processes.bounded import BoundedProcess, Bounds, TooMuchError

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
    kind, size = path.suffix.lower(), path.stat().st_size
    most = LARGEST_DOCUMENT if is_document(path) else LARGEST_TEXT
    if size > most:
        raise UnreadableError(f"{path.name} is larger than {most >> 20} MB; take a part of it")
    if kind == ".pdf":
        return _pdf(path)
    raw = path.read_bytes()
    if kind == ".ipynb":
        return _notebook(path.name, raw)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableError(f"{path.name} is not text, and no PDF or notebook") from None


def _pdf(path: Path) -> str:
    try:
        answer = _reader().ask({"path": str(path.resolve())}, lambda: False)
    except TooMuchError as error:
        raise UnreadableError(f"{path.name} takes too much to be read: {error}") from None
    if "refused" in answer:
        raise UnreadableError(f"{path.name}: {answer['refused']}")
    text = str(answer["text"])
    if not text.strip():
        raise UnreadableError(f"{path.name} has pictures of its pages and no text")
    return text


@functools.cache
def _reader() -> BoundedProcess:
    told = f"more than {_SECONDS:.0f} seconds, or {_MEMORY >> 20} MB of memory"
    bounds = Bounds(_SECONDS, _MEMORY, told=told)
    found = BoundedProcess("localspec.documents.pdf_child", "reads documents", lambda: bounds)
    atexit.register(found.close)
    return found


def _notebook(name: str, raw: bytes) -> str:
    """The cells of a notebook, code in fences; results that are text are kept."""
    try:
        cells = json.loads(raw)["cells"]
        parts = [part for cell in cells for part in _cell(cell)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UnreadableError(f"{name} is not a notebook") from None
    return "\n\n".join(part for part in parts if part.strip())


def _cell(cell: dict[str, Any]) -> list[str]:
    source = _joined(cell.get("source", ""))
    if cell.get("cell_type") != "code":
        return [source]
    shown = [f"```\n{source}\n```"]
    for output in cell.get("outputs", ()):
        text = output.get("text") or (output.get("data") or {}).get("text/plain") or ""
        shown.append(_joined(text)[:4000])
    return shown


def _joined(text: Any) -> str:
    return "".join(text) if isinstance(text, list) else str(text)


__all__ = ["LARGEST_DOCUMENT", "LARGEST_TEXT", "UnreadableError", "is_document", "text_of"]
