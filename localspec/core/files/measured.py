"""Small files of what was measured on this machine: named by the facts that it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from msgspec.json import encode

from localspec.core.files import whole_file


def name_of(facts: Mapping[str, object]) -> str:
    """File name for the facts that the measurements depend on; other facts, another file."""
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20] + ".json"


def write(path: Path, data: object) -> None:
    """Replace a file of JSON in one step, in a folder that is there.

    Not synced: a reply would wait for the disk at its end, and a damaged file is measured again.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    whole_file.replace(path, [encode(data)], sync=False)
