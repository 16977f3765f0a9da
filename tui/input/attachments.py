"""Files and folders that a message names with ``@path``: their text is attached to it, or the
pictures.
"""

from __future__ import annotations

import os
import re
import shlex
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.chats import pictures
from localspec.core.errors import ChatsError
from localspec.core.files import paths
from localspec.core.picture import LARGEST_FILE, is_sound, picture_type

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
    """``text`` and the contents of the files and folders it names. Pictures go in front of it, and
    what named them at the beginning or the end goes. Blocks while they are read.

    Names of missing files are text where they have no dot or slash, or with ``as_words``.

    Raises:
        NoFileError: a word that looks like a path names no file.
        AttachError: a file that is too large, without text, or not readable.
    """
    found = _read(text, as_words=as_words)
    rest = _unnamed(text, found.pictures) if found.pictures else text
    blocks = [one.block for one in found.texts]
    return "\n".join([*found.pictures.values(), "\n\n".join([rest, *blocks])])


def names_files(text: str) -> bool:
    """Whether a message may name files."""
    return "@" in text and _NAME.search(text) is not None


def slow(text: str) -> bool:
    """Whether a message names what takes a while to read: a folder, a PDF, a notebook."""
    names = (quoted or bare for quoted, bare in _NAME.findall(text))
    endings = (".pdf", ".ipynb", "/", os.sep)
    return any(name.rstrip(_AFTER).lower().endswith(endings) for name in names)


def attachments(text: str, *, as_words: bool = False) -> list[Attachment]:
    """The files with text that a message names, in their order. See `attach` for errors."""
    return _read(text, as_words=as_words).texts


@dataclass(frozen=True, slots=True)
class _Named:
    """What a message names."""

    texts: list[Attachment]
    pictures: dict[str, str]
    """References to the pictures, which are kept with the chats, by their names."""


def _read(text: str, *, as_words: bool) -> _Named:
    found: list[Attachment] = []
    shown: dict[str, str] = {}
    for name in dict.fromkeys(quoted or bare for quoted, bare in _NAME.findall(text)):
        if f"\n\n{name.rstrip(_AFTER)}:\n```" in text:
            continue  # an edited message has it already
        try:
            name, path = _file_called(name, as_words=as_words)  # noqa: PLW2901 - as it turned out
            if path is None:
                continue
            if path.is_dir():
                below = _folder(name, path)
                if not below and not as_words:
                    raise NoFileError(f"{name} has no files with text")
                found += below
            elif is_picture(path):
                shown[name] = _kept(path, name)
            else:
                found.append(Attachment(name, _text(name, path)))
        except (OSError, ValueError) as error:
            if isinstance(error, AttachError):
                raise
            reason = getattr(error, "strerror", None) or error
            raise AttachError(f"cannot read {name}: {reason}") from None
    once = list({one.name: one for one in found}.values())  # a file and the folder that it is in
    return _Named(once, shown)


def _file_called(name: str, *, as_words: bool) -> tuple[str, Path | None]:
    """The name, without the punctuation of its sentence, and its file or folder; None for text.

    Raises:
        NoFileError: a word that looks like a path names nothing to attach.
        OSError, ValueError: it cannot be looked at.
    """
    path = paths.expand(name)
    if not path.is_file() and not path.is_dir():
        name = name.rstrip(_AFTER)
        path = paths.expand(name)
    if name and (path.is_file() or (path.is_dir() and set("/\\") & set(name))):
        return name, path
    if name and (path.is_dir() or not as_words):
        _refuse(name, path)
    return name, None


def _text(name: str, path: Path) -> str:
    from localspec.media import documents  # not needed for the first picture

    if documents.is_document(path):
        try:
            return documents.text_of(path)
        except documents.UnreadableError as error:
            raise AttachError(str(error)) from None
    if path.stat().st_size > _LARGEST:
        raise AttachError(f"{name} is larger than 1 MB; attach a part of it")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise AttachError(
            f"{name} is not text; text files, pictures, sounds, PDFs and notebooks can be attached"
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


def is_picture(path: Path) -> bool:
    """Whether a file begins as a picture or a sound does; what is wrong with one is said when it is
    read.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        begins = file.read(16)
    return picture_type(begins) is not None or is_sound(begins)


def _kept(path: Path, name: str) -> str:
    """The reference to a picture, which is kept with the chats.

    Raises:
        AttachError: it is too large, or cannot be kept.
    """
    if path.stat().st_size > LARGEST_FILE:
        raise AttachError(f"{name} is larger than {LARGEST_FILE >> 20} MB, the most for a picture")
    try:
        return pictures.keep(path.read_bytes(), path.name)
    except ChatsError as error:
        raise AttachError(str(error)) from None


def _unnamed(text: str, shown: dict[str, str]) -> str:
    """The text with the names of files in place of those of pictures in the middle of it."""
    text = text.strip()

    def short(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        bare = name if name in shown else name.rstrip(_AFTER)
        if bare not in shown:
            return found[0]
        after = name[len(bare) :]
        alone = not after and (found.start() == 0 or found.end() == len(text))
        return "" if alone else Path(bare).name + after

    return _NAME.sub(short, text).strip()


def dropped(text: str) -> str | None:
    """The ``@`` words for files that were dropped on the terminal, which pastes their paths; None
    where the text is not that, or names anything but pictures.
    """
    if not text.strip() or "\n" in text.strip() or len(text) > _LONGEST_DROP:
        return None
    try:
        names = shlex.split(text)
        files = [urllib.parse.unquote(name.removeprefix("file://")) for name in names]
        absolute = all(Path(file).is_absolute() for file in files)
        if absolute and all(Path(file).is_file() and is_picture(Path(file)) for file in files):
            return "".join(f"{named(file)} " for file in files)
    except (OSError, ValueError):
        pass
    return None


_LONGEST_DROP = 8192


def named(path: str) -> str:
    """The ``@`` word for a file."""
    return f'@"{path}"' if re.search(r"\s", path) else f"@{path}"


def picture_named(path: str) -> str:
    """The ``@`` word for a picture.

    Raises:
        AttachError: there is none at ``path``.
    """
    try:
        if is_picture(paths.expand(path)):
            return named(path)
    except (OSError, ValueError) as error:
        raise AttachError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    raise AttachError(
        f"{path} is no picture (PNG, JPEG, WEBP, GIF or BMP) and no sound (WAV, MP3 or FLAC)"
    )


def fenced(content: str) -> str:
    """A code block whose fence is longer than any run of backticks in ``content``."""
    longest = max((len(run) for run in re.findall(r"`{3,}", content)), default=2)
    fence = "`" * (longest + 1)
    end = "" if content.endswith("\n") else "\n"
    return f"{fence}\n{content}{end}{fence}"
