"""Names of the files of a split model: NAME-00001-of-00003.gguf and so on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_SUFFIX = ".gguf"
_SHARD = re.compile(r"(?P<prefix>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})", re.ASCII)


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
