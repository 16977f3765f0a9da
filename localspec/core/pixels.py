"""A decoded picture, and a decoded sound."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass


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
