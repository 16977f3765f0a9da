"""Files and folders that a message names with ``@path``: their text is attached to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.config import paths

_NAME = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')
"""A name with spaces is quoted."""
_AFTER = ".,;:!?)'\""
_LARGEST = 1 << 20
"""Largest text file in bytes, and largest folder in characters; more fits into no context."""
_MOST_FILES = 200
"""Files of a folder."""


class AttachError(ValueError):
    """A file that cannot be attached; the text is for the user."""


class NoFileError(AttachError):
    """A word that looks like a path but names no file; the user may mean it as text."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """The text of one file."""

    name: str
    """As the message names it; below a folder that is named, with it."""
    text: str

    @property
    def block(self) -> str:
        """The file as it stands in the message."""
        return f"{self.name}:\n{fenced(self.text)}"


def attach(text: str, *, as_words: bool = False) -> str:
    """``text`` and the contents of the files and folders it names. Blocks while they are read.

    Names of missing files are text where they have no dot or slash, or with ``as_words``.

    Raises:
        NoFileError: a word that looks like a path names no file.
        AttachError: a file that is too large, without text, or not readable.
    """
    return "\n\n".join([text, *(one.block for one in attachments(text, as_words=as_words))])


def names_files(text: str) -> bool:
    """Whether a message may name files."""
    return "@" in text and _NAME.search(text) is not None


def slow(text: str) -> bool:
    """Whether a message names what takes a while to read: a folder, a PDF, a notebook."""
    names = (quoted or bare for quoted, bare in _NAME.findall(text))
    endings = (".pdf", ".ipynb", "/", os.sep)
    return any(name.rstrip(_AFTER).lower().endswith(endings) for name in names)


def attachments(text: str, *, as_words: bool = False) -> list[Attachment]:
    """The files that a message names, in their order. See `attach` for errors."""
    found: list[Attachment] = []
    for name in dict.fromkeys(quoted or bare for quoted, bare in _NAME.findall(text)):
        if f"\n\n{name.rstrip(_AFTER)}:\n```" in text:
            continue  # an edited message has it already
        path = paths.expand(name)
        try:
            if not path.is_file() and not path.is_dir():
                name = name.rstrip(_AFTER)  # noqa: PLW2901 - without the punctuation of the sentence
                path = paths.expand(name)
            if not name or (as_words and not (path.is_file() or path.is_dir())):
                continue
            if path.is_dir() and set("/\\") & set(name):
                below = _folder(name, path)
                if not below and not as_words:
                    raise NoFileError(f"{name} has no files with text")
                found += below
            elif path.is_file():
                found.append(Attachment(name, _text(name, path)))
            else:
                _refuse(name, path)
        except (OSError, ValueError) as error:
            if isinstance(error, AttachError):
                raise
            reason = getattr(error, "strerror", None) or error
            raise AttachError(f"cannot read {name}: {reason}") from None
    return list({one.name: one for one in found}.values())  # a file and the folder that it is in


def _text(name: str, path: Path) -> str:
    from localspec.documents import reading  # not needed for the first picture

    if reading.is_document(path):
        try:
            return reading.text_of(path)
        except reading.UnreadableError as error:
            raise AttachError(str(error)) from None
    if path.stat().st_size > _LARGEST:
        raise AttachError(f"{name} is larger than 1 MB; attach a part of it")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise AttachError(
            f"{name} is not text; text files, PDFs and notebooks can be attached"
        ) from None


def _folder(name: str, folder: Path) -> list[Attachment]:
    """The files of a folder that have text; hidden ones, links and others are left out."""
    found: list[Attachment] = []
    size = 0
    for file in _below(folder):
        if len(found) == _MOST_FILES:
            raise AttachError(f"{name} has more than {_MOST_FILES} files with text; name some")
        told = f"{name.rstrip('/' + os.sep)}/{file.relative_to(folder).as_posix()}"
        try:
            one = Attachment(told, _text(told, file))
        except (AttachError, OSError):
            continue  # pictures and programs among the files of a folder are no mistake
        size += len(one.text)
        if size > _LARGEST:
            raise AttachError(f"{name} has more than 1 MB of text; name some of its files")
        found.append(one)
    return found


def _below(folder: Path) -> Iterator[Path]:
    for place, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            file = Path(place, name)
            if not name.startswith(".") and not file.is_symlink() and file.is_file():
                yield file


def _refuse(name: str, path: Path) -> None:
    """Raise for a missing file, unless the name looks like a plain word."""
    if not set("./\\") & set(name):
        return
    if path.is_dir():
        raise NoFileError(f"{name} is a folder; {name}/ attaches its files")
    if path.exists():
        raise NoFileError(f"{name} is not a regular file; only files can be attached")
    raise NoFileError(f"there is no file {name}")


def fenced(content: str) -> str:
    """A code block whose fence is longer than any run of backticks in ``content``."""
    longest = max((len(run) for run in re.findall(r"`{3,}", content)), default=2)
    fence = "`" * (longest + 1)
    end = "" if content.endswith("\n") else "\n"
    return f"{fence}\n{content}{end}{fence}"
