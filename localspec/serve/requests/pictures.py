"""Pictures in requests: bytes that the client sends along, never an address.

A server that fetches what a client names reaches what the client cannot: other machines of the
network, files of this one. So addresses are refused, whatever they are.
"""

from __future__ import annotations

import base64
import binascii
import re
import urllib.parse
from collections.abc import Iterable

from localspec.core.picture import LARGEST_FILE, Picture
from localspec.errors import MediaError

_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w.+-]+=[\w.+-]*)*)(;base64)?,", re.ASCII)


def picture_at(url: str) -> Picture:
    """The picture of a data URI.

    Raises:
        MediaError: it is another address, or no picture; says what to send.
    """
    head = _DATA.match(url)
    if head is None:
        kind = url.partition(":")[0][:20] if ":" in url[:20] else "this address"
        raise MediaError(
            f"this server fetches nothing ({kind}); send the picture itself, as "
            "data:image/png;base64,..."
        )
    _require_image(head[1] or "text/plain")
    raw = url[head.end() :]
    return picture_of(raw) if head[3] else _checked(urllib.parse.unquote_to_bytes(raw))


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


def _require_image(kind: str) -> None:
    if not kind.lower().startswith("image/"):
        raise MediaError(f"{kind[:60]} is no picture; send PNG, JPEG, WEBP, GIF or BMP")


def _checked(data: bytes) -> Picture:
    if not data:
        raise MediaError("the picture is empty")
    if len(data) > LARGEST_FILE:
        raise MediaError(f"the picture is larger than {LARGEST_FILE >> 20} MB, which is the most")
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
        pictures.append(Picture(part.data, at=len(text)))
        after = True
    return text, tuple(pictures)


__all__ = ["joined", "picture_at", "picture_of"]
