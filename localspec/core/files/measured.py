"""Small files of what was measured on this machine: named by the facts that it depends on.

Nothing in them is run or obeyed, so they are read wherever the user wrote them: who may write to a
folder above (a home that a group shares) can exchange it for another of the user's, and no more.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.json import encode

from localspec.core.errors import LocalspecError
from localspec.core.files import checked, closed, whole_file


def name_of(facts: Mapping[str, object]) -> str:
    """File name for the facts that the measurements depend on; other facts, another file."""
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20] + ".json"


def write(path: Path, data: object, *, mode: int = 0o600) -> None:
    """Replace a file of JSON in one step, in a folder that is there, whatever the umask says.

    Not synced: a reply would wait for the disk at its end, and a damaged file is measured again.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    whole_file.replace(path, [encode(data)], mode=mode, sync=False)


def content(path: Path, most: int) -> bytes:
    """The first ``most`` bytes of a file that nobody else could have written, or given its name.

    Raises:
        OSError: it cannot be read, is no regular file or a link; or it, or the folder that it is
            in, belongs to another user or is open to others.
        ValueError: no file can have this name.
    """
    try:
        with checked.opened(path, links=False) as file:
            closed.require_own(path.parent, path.parent.stat())
            closed.require_own(path, os.fstat(file.fileno()))
            return checked.read(file, most)
    except LocalspecError as error:
        raise PermissionError(errno.EPERM, str(error), str(path)) from None


def parsed(path: Path) -> Any:
    """The JSON of such a file.

    Raises:
        OSError: see `content`.
        ValueError: it is not JSON.
    """
    return json.loads(content(path, closed.LARGEST_JSON))


def keep_newest(folder: Path, most: int) -> None:
    """Remove the files that were written longest ago, where there are more than ``most``. Other
    processes may do the same.

    Raises:
        OSError: one cannot be removed.
    """
    found = []
    for path in folder.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            found.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(found)[: max(0, len(found) - most)]:
        path.unlink(missing_ok=True)
