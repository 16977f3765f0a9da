"""What of this machine this process may use: memory and processors."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from localspec.core.processes import cgroups

_STAT = Path("/proc/stat")
_NUMBER = re.compile(r"^cpu([0-9]+) ", re.MULTILINE)
_KINDS = len(("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"))
"""Kinds of processor time that do not overlap, where the system counts them."""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Memory of the host, in bytes, within the limits of a container."""

    available: int
    """Bytes available without swapping, including caches that the system can drop."""
    total: int


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Time that processors have worked since the machine started."""

    seconds: float
    """For all programs, the sum of all processors."""
    processors: int


def memory() -> HostMemory:
    """The memory now."""
    machine, room = psutil.virtual_memory(), cgroups.memory()
    available, total = int(machine.available), int(machine.total)
    if room is None:
        return HostMemory(available, total)
    return HostMemory(min(available, room.free), min(total, room.limit))


def processors() -> int:
    """Processors (threads of cores) that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return int(psutil.cpu_count() or 1)


def processor_time() -> ProcessorTime:
    """The time of the processors that this process may run on; of all where the machine
    does not say which has worked how long.
    """
    own = _own_processors()
    if own:
        return ProcessorTime(sum(map(_worked, own)), len(own))
    return ProcessorTime(_worked(psutil.cpu_times()), psutil.cpu_count() or 1)


def _own_processors() -> list[Any]:
    """Times of each that this process may run on; none where they cannot be told apart."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    try:  # the numbers have gaps where some are switched off, and psutil leaves them out
        numbers = map(int, _NUMBER.findall(_STAT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return []
    own = os.sched_getaffinity(0)
    found = [t for n, t in zip(numbers, psutil.cpu_times(percpu=True), strict=False) if n in own]
    return found if len(found) == len(own) else []  # some containers number their own


def _worked(times: Any) -> float:
    idle = times.idle + getattr(times, "iowait", 0.0)
    return float(sum(times[:_KINDS]) - idle)
