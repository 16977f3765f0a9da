"""The pictures of saved chats.

The bytes of a picture's file are kept once, by their SHA-256, in a folder beside the chats. The
text of a message refers to it where it stands: ``![name](picture:SHA256)``. So branches, edits,
copies and exports of a text keep its pictures.

A picture of a message that waits is shown by no saved one, so another process may erase it with the
last chat that does. Until its message is saved, this process has its bytes too.
"""

from __future__ import annotations

import hashlib
import mimetypes
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.core.errors import ChatsError
from localspec.core.events import Message, Role
from localspec.core.files import checked, paths, whole_file
from localspec.core.picture import Picture

_REFERENCE = re.compile(r"!\[([^\[\]\n]*)\]\(picture:([0-9a-f]{64})\)")
_UNSENT_S = 86400.0
"""Seconds after which a picture that no message shows was not sent."""
_MOST_WAITING = 128 << 20
"""Bytes of pictures of messages that wait; the oldest are left to their files."""
_waiting: OrderedDict[str, bytes] = OrderedDict()
"""By digest."""
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Reference:
    """A picture in the text of a message."""

    name: str
    digest: str
    """SHA-256 of the file, in hex."""
    start: int
    end: int

    @property
    def path(self) -> Path:
        """The file."""
        return _folder() / self.digest


def _folder() -> Path:
    return paths.data_dir() / "pictures"


def keep(data: bytes, name: str) -> str:
    """Store the bytes of a picture's file; returns a reference for the text of a message.

    Raises:
        ChatsError: they cannot be stored.
    """
    digest = hashlib.sha256(data).hexdigest()
    _store(digest, data, name)
    with _lock:
        _waiting[digest] = data
        _waiting.move_to_end(digest)
        while sum(map(len, _waiting.values())) > _MOST_WAITING:
            _waiting.popitem(last=False)
    plain = re.sub(r"[\[\]\s]+", " ", name).strip()[:80] or "picture"
    return f"![{plain}](picture:{digest})"


def _store(digest: str, data: bytes, name: str) -> None:
    path = _folder() / digest
    try:
        paths.make_parent(path)
        if not path.is_file():
            whole_file.replace(path, [data])
    except OSError as error:
        raise ChatsError(f"{name} cannot be kept: {error.strerror or error}") from None


def _restored(found: Reference) -> bool:
    """Whether a picture is there, written again where it was erased while its message waited."""
    with _lock:
        data = _waiting.get(found.digest)
    if data is not None:
        _store(found.digest, data, found.name)
    try:
        return found.path.is_file()
    except OSError:  # whoever reads it says what is wrong with the disk
        return True


def _picture(found: Reference, at: int) -> Picture | None:
    """A picture of a request, ``at`` so many characters; None where it is not there any more. One
    of a message that waits outlives its disk.
    """
    try:
        there = _restored(found)
    except ChatsError:  # and the saver says so, of the whole chat
        with _lock:
            return Picture(_waiting.get(found.digest, b""), at=at, name=found.name)
    return Picture(path=str(found.path), at=at, name=found.name) if there else None


def saved(texts: Iterable[str]) -> None:
    """Messages with these texts were saved: whoever erases their pictures now knows of them.

    Raises:
        ChatsError: one was erased while its message waited, and cannot be stored again.
    """
    for found in (found for text in texts if "](picture:" in text for found in references(text)):
        if found.digest in _waiting:
            _restored(found)
            with _lock:
                _waiting.pop(found.digest, None)


def references(text: str) -> list[Reference]:
    """The pictures of a text."""
    return [Reference(m[1], m[2], *m.span()) for m in _REFERENCE.finditer(text)]


def message(role: Role, text: str) -> Message:
    """A message whose text may refer to pictures. Those that are not there any more leave their
    names behind.
    """
    if role != "user" or "](picture:" not in text:
        return Message(role, text)
    said, begun, pictures = "", 0, list[Picture]()
    for found in references(text):
        said += text[begun : found.start]
        begun = found.end
        if (picture := _picture(found, len(said))) is not None:
            pictures.append(picture)
        else:
            said += f"[{found.name}: not there any more]"
    return Message(role, said + text[begun:], pictures=tuple(pictures))


def shown(text: str) -> str:
    """A text with the names of its pictures and sounds in place of the references."""
    return _REFERENCE.sub(lambda found: f"[{_kind(found[1])}: {found[1]}]", text)


def _kind(name: str) -> str:
    """What a file is, for users, by its name."""
    return "sound" if (mimetypes.guess_type(name)[0] or "").startswith("audio/") else "picture"


def named(text: str) -> str:
    """A text without its pictures, for a title; their names where there is nothing else."""
    return _REFERENCE.sub("", text).strip() or shown(text)


def erase(shown_by_erased: Iterable[str], shown: Container[str]) -> None:
    """Remove the files of erased chats, and those that no message ever showed and that are older
    than a day, but for those that are still ``shown``.

    Raises:
        ChatsError: one cannot be removed.
    """
    erased = set(shown_by_erased)
    before = time.time() - _UNSENT_S
    for path in _folder().glob("*"):
        try:
            old = path.name in erased or path.stat().st_mtime < before
            if old and path.name not in shown:
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ChatsError(
                f"{path} is of an erased chat and cannot be removed: {error.strerror}"
            ) from None


def of_texts(texts: Iterable[str]) -> dict[str, bytes]:
    """The files that texts refer to, as far as they are there, by digest.

    Raises:
        ChatsError: one is there and cannot be read.
    """
    files = dict[str, bytes]()
    for found in (found for text in texts for found in references(text)):
        try:
            with checked.opened(found.path) as file:
                files[found.digest] = file.read()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ChatsError(f"{found.name} cannot be read: {error.strerror}") from None
    return files


def restore(files: dict[str, Any]) -> None:
    """Store the files of an import; one whose digest is wrong is left out.

    Raises:
        ChatsError: they cannot be stored.
    """
    for digest, data in files.items():
        if hashlib.sha256(data).hexdigest() == digest:
            keep(data, digest)
