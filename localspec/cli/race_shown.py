"""Whether the race of drafting against plain decoding was shown to this user."""

from __future__ import annotations

from localspec.core.errors import LocalspecError
from localspec.core.files import paths

_NAME = "race-shown"
"""Name of an empty file in the folder of state."""


def note() -> bool:
    """Note that the race is shown now; whether that was noted for the first time.

    False also where it cannot be noted: a first chat would begin with the race every time.
    """
    file = paths.state_dir() / _NAME
    try:
        if file.exists():
            return False
        paths.make(file.parent)
        file.touch()
    except (OSError, LocalspecError):
        return False
    return True
