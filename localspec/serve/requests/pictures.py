"""Pictures in requests: bytes that the client sends along, or an address.

A server that fetches what a client names reaches what the client cannot: other machines of the
network, files of this one. So addresses are only noted here; `localspec.serve.backend.media_places`
fetches those that the server was started for, and refuses all others.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import re
import urllib.parse
from collections.abc import Iterable

from localspec.core.errors import MediaError
from localspec.core.picture import LARGEST_FILE, UNSEEN, Picture, is_sound
from localspec.core.safe_text import safe_line

_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w.+-]+=[\w.+-]*)*)(;base64)?,", re.ASCII)
_LONGEST_HEAD = 1024
"""Characters of a data URI before its data: what is matched against more takes memory for each."""
_LONGEST = 8192
"""Characters of an address."""
_MOST_ESCAPES = 1 << 16
"""Bytes that a data URI may write as %41: each takes 200 bytes and half a microsecond in one step,
in which no other thread has its turn."""


def not_fetched(address: str) -> str:
    """Why an address is refused, for whoever sent it."""
    kind = address.partition(":")[0][:20] if ":" in address[:20] else "this address"
    return (
        f"this server fetches nothing ({safe_line(kind)}); send the picture itself, as "
        "data:image/png;base64,..., or start the server with --allow-media"
    )


def picture_at(url: str) -> Picture:
    """The picture of a data URI, or at an address.

    Raises:
        MediaError: it is no picture, or no address; says what to send.
    """
    head = _DATA.match(url, 0, _LONGEST_HEAD)
    if head is None:
        if len(url) <= _LONGEST and url.partition("://")[0].lower() in ("http", "https", "file"):
            return Picture(address=url)
        raise MediaError(not_fetched(url))
    _require_image(head[1] or "text/plain")
    raw = url[head.end() :]
    if head[3]:
        return picture_of(raw)
    if raw.count("%") > _MOST_ESCAPES:
        raise MediaError(
            f"the picture has more than {_MOST_ESCAPES} bytes written as %41; send it in base64, "
            "as data:image/png;base64,..."
        )
    return _checked(urllib.parse.unquote_to_bytes(raw))


def picture_of(data: str, kind: str | None = None) -> Picture:
    """The picture of bytes in base64; ``kind`` is the media type that the client states.

    Raises:
        MediaError: it is no picture, or no base64.
    """
    if kind is not None:
        _require_image(kind)
    try:
        return _checked(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        raise MediaError("the picture is not in base64") from None


def sound_of(data: str) -> Picture:
    """The sound of bytes in base64.

    Raises:
        MediaError: it is none, or no base64.
    """
    try:
        found = _checked(base64.b64decode(data, validate=True), "sound")
    except (binascii.Error, ValueError):
        raise MediaError("the sound is not in base64") from None
    if not is_sound(found.data[:12]):
        raise MediaError("the sound is of no known kind; send WAV, MP3 or FLAC")
    return dataclasses.replace(found, name="the sound")


def picture_of_result(url: object) -> str | Picture:
    """The picture of a data URI in a tool's result; `UNSEEN` for anything else: nobody asked for
    it, so it is no reason to refuse a request.
    """
    if isinstance(url, str) and url.startswith("data:"):
        with contextlib.suppress(MediaError):
            return picture_at(url)
    return UNSEEN


def _require_image(kind: str) -> None:
    if not kind.lower().startswith("image/"):
        raise MediaError(f"{kind[:60]} is no picture; send PNG, JPEG, WEBP, GIF or BMP")


def _checked(data: bytes, what: str = "picture") -> Picture:
    if not data:
        raise MediaError(f"the {what} is empty")
    if len(data) > LARGEST_FILE:
        raise MediaError(f"the {what} is larger than {LARGEST_FILE >> 20} MB, which is the most")
    return Picture(data=data)


def joined(parts: Iterable[str | Picture], between: str = "") -> tuple[str, tuple[Picture, ...]]:
    """The text of a message's parts, with ``between`` from one to the next, and its pictures, each
    on a line of its own.
    """
    text, pictures, after, said = "", list[Picture](), False, False
    for part in parts:
        if isinstance(part, str):
            begins = "\n" if after and part else between if said and not after else ""
            text += begins + part
            after, said = after and not part, True
            continue
        if text and not after:
            text += "\n"
        pictures.append(dataclasses.replace(part, at=len(text)))
        after = True
    return text, tuple(pictures)
