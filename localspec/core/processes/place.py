"""Where numbers of processes mean something. Containers and other machines may have the same home;
names of files that tell which processes run begin with their place, and those of others are left
alone.
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

_OLD_S = 60 * 86400.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NUMBERS = Path("/proc/self/ns/pid")


def here() -> str:
    """How names of files begin in this boot of the machine and among these numbers of processes."""
    boot, numbers = "machine", "0"
    with contextlib.suppress(OSError, ValueError):  # not on every system
        boot = re.sub(r"\W", "", _BOOT.read_text(encoding="ascii"))
        numbers = re.sub(r"\D", "", str(_NUMBERS.readlink()))
    return f"{boot}-{numbers}-"


def is_forsaken(written: float) -> bool:
    """Whether a file that another place wrote then is too old: that may not exist any more."""
    return time.time() - written > _OLD_S
