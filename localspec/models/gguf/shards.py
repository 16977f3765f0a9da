"""The files of a model: names of those of a split one (NAME-00001-of-00003.gguf and so on), and
fingerprints without reading gigabytes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

_SUFFIX = ".gguf"
_SHARD = re.compile(r"(?P<prefix>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})", re.ASCII)

_HEAD = 1 << 20
_SAMPLE = 1 << 12
_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a split model, by its name."""

    prefix: str
    """The name without number and suffix."""
    index: int
    """Number of the shard, from 1."""
    count: int


def shard_of(name: str) -> Shard | None:
    """The shard that a file name or path denotes; None for a file that is not a shard."""
    if not name.lower().endswith(_SUFFIX):
        return None
    found = _SHARD.fullmatch(name[: -len(_SUFFIX)])
    if found is None or not 1 <= int(found["index"]) <= int(found["count"]):
        return None
    return Shard(found["prefix"], int(found["index"]), int(found["count"]))


def shard_names(name: str) -> tuple[str, ...]:
    """Names of all files of the model that ``name`` belongs to; itself alone if it is not split."""
    shard = shard_of(name)
    if shard is None:
        return (name,)
    return tuple(
        f"{shard.prefix}-{i:05}-of-{shard.count:05}{_SUFFIX}" for i in range(1, shard.count + 1)
    )


def shards(path: Path) -> list[Path]:
    """All files of the model that ``path`` is a file of, in order."""
    return [path.parent / name for name in shard_names(path.name)]


def n_bytes(path: Path) -> int:
    """Bytes of all files of the model that ``path`` is a file of.

    Raises:
        OSError: one of them is missing.
    """
    return sum(file.stat().st_size for file in shards(path))


def fingerprint(path: Path) -> str:
    """Hash of the size, the first megabyte and 64 samples of the rest of each file of a model.

    The header identifies the model, the samples distinguish its fine-tunes. All shards count, since
    the first may hold metadata alone. Not for security: bytes between the samples are not covered.

    Raises:
        OSError: one of the files cannot be read.
    """
    files = [_file_hash(file) for file in shards(path)]
    return files[0] if len(files) == 1 else hashlib.sha256("".join(files).encode()).hexdigest()[:32]


def _file_hash(path: Path) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_HEAD))
        rest = size - _HEAD - _SAMPLE
        if rest > 0:
            for i in range(_SAMPLES):
                file.seek(_HEAD + rest * i // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()[:32]
