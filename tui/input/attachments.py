"""Files and folders that a message names with ``@path``: their text is attached to it, or the
pictures.
"""

from __future__ import annotations

import os
import re
import shlex
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.chats import pictures
from localspec.core.errors import ChatsError, Interrupted, LocalspecError, UnreadableError
from localspec.core.files import checked, paths
from localspec.core.picture import LARGEST_FILE, is_sound, picture_type
from tui.input.message_draft import AFTER, Draft, fenced

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


@dataclass(frozen=True, slots=True)
class Files:
    """What a message names."""

    draft: Draft
    texts: list[Attachment]
    pictures: dict[str, str]
    """References to the pictures, which are kept with the chats, by their names."""

    @property
    def message(self) -> str:
        """The message with all of it. Pictures go in front, and what named them at the beginning or
        the end goes.
        """
        rest = _unnamed(self.draft, self.pictures) if self.pictures else self.draft.text
        blocks = [one.block for one in self.texts]
        return "\n".join([*self.pictures.values(), "\n\n".join([rest, *blocks])])


def read(
    draft: Draft, *, as_words: bool = False, cancelled: Callable[[], bool] = lambda: False
) -> Files:
    """The files that a message names, in their order. Blocks while they are read.

    Names of missing files are text where they have no dot or slash, or with ``as_words``.

    Raises:
        NoFileError: a word that looks like a path names no file.
        AttachError: a file that is too large, without text, or not readable.
        Interrupted: ``cancelled`` returned true.
    """
    found: list[Attachment] = []
    shown: dict[str, str] = {}
    for name in draft.names():
        if draft.has(name.rstrip(AFTER)):
            continue
        try:
            name, path = _file_called(name, as_words=as_words)  # noqa: PLW2901 - as it turned out
            if path is None:
                continue
            if path.is_dir():
                below = _folder(name, path, cancelled)
                if not below and not as_words:
                    raise NoFileError(f"{name} has no files with text")
                found += below
            elif is_picture(path):
                shown[name] = _kept(path, name)
            else:
                found.append(Attachment(name, _text(name, path, cancelled)))
        except (OSError, ValueError, LocalspecError) as error:
            if isinstance(error, AttachError | Interrupted):
                raise
            reason = getattr(error, "strerror", None) or error
            raise AttachError(f"cannot read {name}: {reason}") from None
    once = list({one.name: one for one in found}.values())  # a file and the folder that it is in
    return Files(draft, once, shown)


def _file_called(name: str, *, as_words: bool) -> tuple[str, Path | None]:
    """The name, without the punctuation of its sentence, and its file or folder; None for text.

    Raises:
        NoFileError: a word that looks like a path names nothing to attach.
    """
    path = paths.expand(name)
    if not paths.is_file(path) and not paths.is_dir(path):
        name = name.rstrip(AFTER)
        path = paths.expand(name)
    if name and (paths.is_file(path) or (paths.is_dir(path) and set("/\\") & set(name))):
        return name, path
    if name and (paths.is_dir(path) or not as_words):
        _refuse(name, path)
    return name, None


def _text(name: str, path: Path, cancelled: Callable[[], bool]) -> str:
    from localspec.media import documents  # not needed for the first picture

    if documents.is_document(path):
        try:
            return documents.text_of(path, cancelled)
        except UnreadableError as error:
            raise AttachError(str(error)) from None
    if path.stat().st_size > _LARGEST:
        raise AttachError(f"{name} is larger than 1 MB; attach a part of it")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise AttachError(
            f"{name} is not text; text files, pictures, sounds, PDFs and notebooks can be attached"
        ) from None


def _folder(name: str, folder: Path, cancelled: Callable[[], bool]) -> list[Attachment]:
    """The files of a folder that have text; hidden ones, links and others are left out."""
    found: list[Attachment] = []
    size = 0
    for file in _below(folder):
        if cancelled():
            raise Interrupted("reading the files was interrupted")
        if len(found) == _MOST_FILES:
            raise AttachError(f"{name} has more than {_MOST_FILES} files with text; name some")
        told = f"{name.rstrip('/' + os.sep)}/{file.relative_to(folder).as_posix()}"
        try:
            one = Attachment(told, _text(told, file, cancelled))
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
    if paths.is_dir(path):
        raise NoFileError(f"{name} is a folder; {name}/ attaches its files")
    try:
        exists = path.exists()
    except OSError as error:  # it is too long for a name, or below a folder that is closed
        raise NoFileError(f"cannot read {name}: {error.strerror}") from None
    if exists:
        raise NoFileError(f"{name} is not a regular file; only files can be attached")
    raise NoFileError(f"there is no file {name}")


def is_picture(path: Path) -> bool:
    """Whether a file begins as a picture or a sound does; what is wrong with one is said when it is
    read.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with checked.opened(path) as file:
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


def _unnamed(draft: Draft, shown: dict[str, str]) -> str:
    """The text with the names of files in place of those of pictures in the middle of it."""
    text = rest = draft.text.strip()
    for found in reversed(draft.words(text)):
        name = found[1] or found[2]
        bare = name if name in shown else name.rstrip(AFTER)
        if bare not in shown:
            continue
        after = name[len(bare) :]
        alone = not after and (found.start() == 0 or found.end() == len(text))
        told = "" if alone else Path(bare).name + after
        rest = rest[: found.start()] + told + rest[found.end() :]
    return rest.strip()


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
    except OSError as error:
        raise AttachError(f"cannot read {path}: {error.strerror}") from None
    raise AttachError(
        f"{path} is no picture (PNG, JPEG, WEBP, GIF or BMP) and no sound (WAV, MP3 or FLAC)"
    )
