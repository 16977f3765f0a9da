"""A picture or a sound of a message: the file's bytes, or where it is, and its place in the text;
and what it is when decoded.

Without numpy: an interface starts sooner that way.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

MOST_PICTURES = 64
"""Pictures of one request; the first ones of results of tools are left out to that end."""
LARGEST_FILE = 32 << 20
"""Bytes of a picture's file."""
LEFT_OUT = "[a picture, left out: later ones are shown]"
"""Stands in results of tools for pictures beyond the most of a request."""
UNSEEN = "[something other than text, which this model cannot read]"
"""Stands in results of tools for pictures that cannot be seen, and for other files. The user did
not send them, and an agent's conversation would end where they are refused.
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture of a message, or a sound: which of them, its bytes tell (`is_sound`)."""

    data: bytes = b""
    """The file's bytes, as they were sent."""
    path: str = ""
    """The file, where ``data`` is empty: it is read when the message is answered."""
    at: int = 0
    """Characters of the message's text before it."""
    name: str = ""
    """What the user calls it, for messages."""
    address: str = ""
    """Where a client of the server says that it is; the server fetches it before anything else, or
    refuses it.
    """


_MP3_FRAMES = tuple(b"\xff" + bytes([second]) for second in b"\xfb\xfa\xf3\xf2\xe3\xe2")
"""Beginnings of frames of layer III; other layers begin as UTF-16 may."""


def is_sound(begins: bytes) -> bool:
    """Whether a file that begins with these twelve bytes is a sound: WAV, FLAC, Ogg or MP3."""
    wave = begins[:4] == b"RIFF" and begins[8:12] == b"WAVE"
    return wave or begins.startswith((b"fLaC", b"OggS", b"ID3", *_MP3_FRAMES))


_TYPES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)
"""Media types of pictures by how their files begin; WEBP has its own further in."""


def picture_type(begins: bytes) -> str | None:
    """The media type of a picture whose file begins with these twelve bytes; None for no picture
    of those that are decoded.
    """
    if begins[:4] == b"RIFF" and begins[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for head, kind in _TYPES if begins.startswith(head)), None)


@dataclass(frozen=True)
class Pixels:
    """RGB pixels, 8 bits each, row after row from the top."""

    width: int
    height: int
    rgb: bytes
    """``3 * width * height`` bytes."""

    @functools.cached_property
    def digest(self) -> bytes:
        """SHA-256 of the size and the pixels."""
        size = self.width.to_bytes(4, "little") + self.height.to_bytes(4, "little")
        return hashlib.sha256(size + self.rgb).digest()


@dataclass(frozen=True)
class Samples:
    """A sound of one channel."""

    rate: int
    """Samples of a second."""
    data: bytes
    """float32 in the order of this machine, from -1 to 1."""

    def __len__(self) -> int:
        """Samples."""
        return len(self.data) // 4

    @functools.cached_property
    def digest(self) -> bytes:
        """SHA-256 of the rate and the samples."""
        return hashlib.sha256(self.rate.to_bytes(4, "little") + self.data).digest()


Decoded = Pixels | Samples
