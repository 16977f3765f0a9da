"""When processes began, by which one is told from another that got its number."""

from __future__ import annotations

import math
import os
from pathlib import Path

_SAME_S = 5.0
"""Seconds by which the start of one process may differ between two looks, where it is told by a
clock that is corrected.
"""


def began(pid: int) -> float:
    """When a process began, in seconds: since the machine started where that is known, for clocks
    are corrected; no number where there is no such process.
    """
    if Path("/proc/self/stat").is_file():
        try:  # proc(5): the 22nd field, and the second one may have spaces
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2]
            return int(fields.split()[19]) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return math.nan
    import psutil  # here: slow to import, and mostly there is nothing to look for

    try:
        return float(psutil.Process(pid).create_time())
    except (psutil.Error, ValueError, OverflowError):
        return math.nan


def runs(pid: int, since: float) -> bool:
    """Whether the process that `began` then still runs."""
    return abs(began(pid) - since) < _SAME_S
