"""The text of PDFs, notebooks and other files. The first two are read in a process of its own: a
file made to fault a parser stops nothing else.
"""

from __future__ import annotations

import atexit
import functools
import json
import logging
from pathlib import Path
from typing import Any

from localspec.core.errors import UnreadableError
from localspec.core.interrupt import Cancelled, never
from localspec.core.processes.bounded import BoundedProcess, Bounds, TooMuchError
from localspec.core.processes.bounded_child import address_space, answer_lines, limit_memory

LARGEST_TEXT = 1 << 20
"""Bytes of a text file: more fits into no context."""
LARGEST_DOCUMENT = 64 << 20
"""Bytes of a PDF or a notebook, most of which are pictures."""
_SECONDS = 30.0
_MEMORY = 1 << 30

_CHILD_SECONDS = 25.0
_CHILD_MEMORY = 900 << 20
_LARGEST = 4_000_000
"""Characters of the text."""


def is_document(path: Path) -> bool:
    """Whether a file is of a kind that is converted to text."""
    return path.suffix.lower() in {".pdf", ".ipynb"}


def text_of(path: Path, cancelled: Cancelled = never) -> str:
    """The text of a file. Blocks.

    Raises:
        UnreadableError: it has none, or too much.
        Interrupted: ``cancelled`` returned true.
        OSError: it cannot be read.
        LocalspecError: the process that reads documents cannot be started.
    """
    most = LARGEST_DOCUMENT if is_document(path) else LARGEST_TEXT
    if path.stat().st_size > most:
        raise UnreadableError(f"{path.name} is larger than {most >> 20} MB; take a part of it")
    if is_document(path):
        return _converted(path, cancelled)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableError(f"{path.name} is not text, and no PDF or notebook") from None


def _converted(path: Path, cancelled: Cancelled) -> str:
    try:
        answer = _reader().ask({"path": str(path.resolve())}, cancelled)
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
    found = BoundedProcess("localspec.media.documents", "reads documents", lambda: bounds)
    atexit.register(found.close)
    return found


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The text of a document, or why there is none."""
    path = Path(request["path"])
    try:
        text = _notebook(path) if path.suffix.lower() == ".ipynb" else _pdf(path)
    except OSError as error:
        return {"refused": error.strerror or str(error)}
    except _RefusedError as error:
        return {"refused": str(error)}
    if len(text) > _LARGEST:
        text = f"{text[:_LARGEST]}\n\n… (cut here)"
    return {"text": text}


class _RefusedError(Exception):
    """The document has no text that can be read; says why."""


def _pdf(path: Path) -> str:
    """The pages with their numbers; "" where none has text."""
    try:
        return _pages(path)
    except (OSError, _RefusedError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a damaged file makes of the parser
        said = " ".join(str(error).split())[:200]
        raise _RefusedError(f"not a PDF that can be read: {said}") from None


def _pages(path: Path) -> str:
    import pypdf  # not needed for notebooks

    reader = pypdf.PdfReader(path)
    if reader.is_encrypted and not reader.decrypt(""):
        raise _RefusedError("it is locked with a password")
    parts, taken = [], 0
    for number, page in enumerate(reader.pages, 1):
        text = page.extract_text()
        taken += len(text)
        parts.append(f"[page {number}]\n{text}")
        if taken > _LARGEST:
            break
    return "\n\n".join(parts) if taken else ""


def _notebook(path: Path) -> str:
    """The cells, code in fences; results that are text are kept."""
    try:
        cells = json.loads(path.read_bytes())["cells"]
        parts = [part for cell in cells for part in _cell(cell)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _RefusedError("it is not a notebook") from None
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


def main() -> None:
    """Answer until stdin ends."""
    logging.disable()
    space = address_space()
    limit_memory(None if space is None else space + _CHILD_MEMORY)
    answer_lines(answer, _CHILD_SECONDS, computing=True)


if __name__ == "__main__":
    main()
