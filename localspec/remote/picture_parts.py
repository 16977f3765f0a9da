"""Messages in OpenAI's shape; their pictures and sounds travel along, as bytes in base64."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from localspec.core.errors import MediaError
from localspec.core.events import Message
from localspec.core.picture import Picture, is_sound, picture_type
from localspec.media.decoding import called, file_of

MOST_BYTES = 64 << 20
"""Bytes of all files of one request, which the server has to hold."""
_SOUNDS = {b"RIFF": "wav", b"fLaC": "flac", b"OggS": "ogg"}
"""Names of the formats of sounds by their first four bytes; all others are MP3."""


def messages(given: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages; a text is in parts where pictures stand in it. Files are read: this blocks.

    Raises:
        MediaError: a picture cannot be read, is of no known kind, or they are too large together.
    """
    total, found = 0, []
    for message in given:
        content: str | list[dict[str, Any]] = message.content
        if message.pictures:
            files = [file_of(picture) for picture in message.pictures]
            total += sum(map(len, files))
            if total > MOST_BYTES:
                raise MediaError(
                    f"the pictures of this conversation have more than {MOST_BYTES >> 20} MB "
                    "together, which is the most for a server elsewhere: begin a new chat, or "
                    "leave out earlier ones"
                )
            content = _parts(message, files)
        found.append({"role": message.role, "content": content})
    return found


def _parts(message: Message, files: Sequence[bytes]) -> list[dict[str, Any]]:
    """The parts of a message. The end of a line at a picture is the one between two parts."""
    found: list[dict[str, Any]] = []
    begun = 0
    for picture, data in zip(message.pictures, files, strict=True):
        text = message.content[begun : picture.at].removesuffix("\n")
        found += [*_text(text, after=bool(found)), _part(picture, data)]
        begun = max(begun, picture.at)
    return found + _text(message.content[begun:], after=True)


def _text(text: str, *, after: bool) -> list[dict[str, Any]]:
    said = text.removeprefix("\n") if after else text
    return [{"type": "text", "text": said}] if said else []


def _part(picture: Picture, data: bytes) -> dict[str, Any]:
    """One picture or sound.

    Raises:
        MediaError: it is neither.
    """
    begins, text = data[:16], base64.b64encode(data).decode("ascii")
    if is_sound(begins):
        sound = {"data": text, "format": _SOUNDS.get(begins[:4], "mp3")}
        return {"type": "input_audio", "input_audio": sound}
    kind = picture_type(begins)
    if kind is None:
        raise MediaError(
            f"{called(picture)} is of no known kind: there are PNG, JPEG, WEBP, GIF and BMP, and "
            "WAV, MP3 and FLAC"
        )
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{text}"}}
