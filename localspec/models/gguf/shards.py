"""Files of a split model."""

from __future__ import annotations

import re
from pathlib import Path

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def shards(path: Path) -> list[Path]:
    """All files of the model that ``path`` is the first file of."""
    found = _SHARD.search(path.name)
    if found is None:
        return [path]
    stem, count = path.name[: found.start()], int(found[2])
    return [path.with_name(f"{stem}-{i:05d}-of-{count:05d}.gguf") for i in range(1, count + 1)]
