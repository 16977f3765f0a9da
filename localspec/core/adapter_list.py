"""LoRA adapters as users name them: a list of FILE[:SCALE]. Without numpy, as the settings are."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.errors import UsageError

_MOST = 16
_LARGEST = 100.0
"""Beyond it an adapter drowns the model."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter of a model."""

    path: Path
    scale: float = 1.0
    """0 is the model without it."""

    @classmethod
    def of(cls, text: str) -> Adapter:
        """The adapter that FILE or FILE:SCALE names.

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
            raise UsageError("lora must name a .gguf file, as in adapter.gguf or adapter.gguf:0.5")
        if not math.isfinite(scale) or abs(scale) > _LARGEST:
            raise UsageError(f"the scale of {name[:80]} must be between -100 and 100")
        return cls(Path(name).expanduser(), scale)


def read(given: str | Sequence[str]) -> str:
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
            raise UsageError("lora must be a file, or a list of files in JSON")
        texts += found
    if len(texts) > _MOST:
        raise UsageError(f"{len(texts)} adapters; {_MOST} is the most")
    for text in texts:
        Adapter.of(text)
    return json.dumps(texts, ensure_ascii=False)


def adapters(listed: str) -> tuple[Adapter, ...]:
    """The adapters of such a list.

    Raises:
        UsageError: as `read`, or a file is named twice.
    """
    found = tuple(Adapter.of(text) for text in json.loads(read(listed)))
    paths = [adapter.path.resolve() for adapter in found]
    if len(set(paths)) < len(paths):
        raise UsageError("lora names a file twice; give one scale for each")
    return found
