"""LoRA adapters and control vectors as users name them, a list of FILE[:SCALE], and the adapters
that a request chooses. Without numpy, as the settings are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.core.errors import UsageError
from localspec.core.files import paths

_LARGEST = 100.0
"""Beyond it an adapter drowns the model."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter of a model."""

    path: Path
    scale: float = 1.0
    """0 is the model without it."""

    @classmethod
    def of(cls, text: str, setting: str = "lora") -> Adapter:
        """The adapter that FILE or FILE:SCALE names, in a setting.

        Raises:
            UsageError: no file is named, or the scale is out of range.
        """
        name, colon, last = text.rpartition(":")
        try:
            scale = float(last) if colon else None
        except ValueError:  # a part of the file's name
            scale = None
        if scale is None:
            name, scale = text, 1.0
        if not name.strip():
            raise UsageError(f"{setting} must name a .gguf file, as in FILE.gguf or FILE.gguf:0.5")
        if not math.isfinite(scale) or abs(scale) > _LARGEST:
            raise UsageError(f"the scale of {name[:80]} {SCALES}")
        return cls(paths.expand(name), scale)


@dataclass(frozen=True, slots=True)
class AdapterUse:
    """A loaded adapter, as a request uses it."""

    path: str
    """The name that it was loaded by: its file, unless another one was given."""
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.scale) or abs(self.scale) > _LARGEST:
            raise UsageError(f"the scale of {Path(self.path).name[:80]} {SCALES}")


@dataclass(frozen=True, slots=True)
class Blend:
    """Adapters that are computed with together."""

    parts: tuple[tuple[str, float], ...] = ()
    """The digest of each one's file, and its scale, which is not 0; in the order of the digests."""
    key: str = ""
    """Tells it from other blends; "" is what the model was loaded with."""

    @property
    def digests(self) -> frozenset[str]:
        """The digests of the adapters' files."""
        return frozenset(digest for digest, _ in self.parts)

    def owner(self, name: str) -> str:
        """The owner, in the prefix cache, of what was read with it for a user of that name."""
        return f"adapters {self.key} {name}" if self.key else name


AS_LOADED = Blend()
"""The blend of models that no adapter was loaded for."""
MOST = 16
"""Adapters of one model."""
SCALES = "must be between -100 and 100"


def read(given: str | Sequence[str], setting: str = "lora") -> str:
    """A list in JSON: of one text, of a list in JSON, or of texts that may each be either.

    Raises:
        UsageError: it is no such list, or names no file.
    """
    texts: list[str] = []
    for one in (given,) if isinstance(given, str) else given:
        found: Any = [one] if one.strip() else []
        if one.lstrip().startswith("["):
            try:
                found = json.loads(one)
            except (ValueError, RecursionError):
                found = None
        if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
            raise UsageError(f"{setting} must be a file, or a list of files in JSON")
        texts += found
    if len(texts) > MOST:
        raise UsageError(f"{len(texts)} files in {setting}; {MOST} is the most")
    for text in texts:
        Adapter.of(text, setting)
    return json.dumps(texts, ensure_ascii=False)


def read_vectors(given: str | Sequence[str]) -> str:
    """The same for control vectors.

    Raises:
        UsageError: as `read`.
    """
    return read(given, "control_vector")


def adapters(listed: str, setting: str = "lora") -> tuple[Adapter, ...]:
    """The adapters of such a list.

    Raises:
        UsageError: as `read`, or a file is named twice.
    """
    texts = json.loads(read(listed, setting))
    found = tuple(Adapter.of(text, setting) for text in texts)
    paths = [adapter.path.resolve() for adapter in found]
    if len(set(paths)) < len(paths):
        raise UsageError(f"{setting} names a file twice; give one scale for each")
    return found
