"""A decoded picture."""

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


__all__ = ["Pixels"]
