"""Limits of this process's control groups: memory and processor time on Linux.

Containers, units of systemd and slices of users have them, in version 2 of the interface or in
version 1, with a hierarchy for each controller. Those of all groups hold, from that of the process
up to the root, so the least one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc/self")
_DIGITS = re.compile(r"[0-9]{1,19}")
_ESCAPED = re.compile(r"\\([0-7]{3})")
_NO_LIMIT = 1 << 60
"""Version 1 states a number of bytes near 2**63 where there is no limit."""

_ABOVE = "hierarchical_memory_limit"
"""The least limit of a group and of those above it, in the statistics of version 1."""


@dataclass(frozen=True, slots=True)
class Room:
    """Memory under a limit, in bytes."""

    limit: int
    free: int
    """Bytes until the limit, with what the system can drop: cached pages of files."""


@dataclass(frozen=True, slots=True)
class _MemoryFiles:
    """Names of files and of lines in them."""

    limits: tuple[str, ...]
    used: str
    dropped: frozenset[str]


_VERSION_1 = _MemoryFiles(
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    frozenset({"total_active_file", "total_inactive_file"}),
)
_VERSION_2 = _MemoryFiles(
    ("memory.max", "memory.high"),  # beyond the second one it hardly runs
    "memory.current",
    frozenset({"active_file", "inactive_file", "slab_reclaimable"}),
)


def memory() -> Room | None:
    """What the limits leave; None without a limit.

    The system kills a process that exceeds one, whatever the machine has.
    """
    rooms = [room for group in _groups("memory") if (room := _room(group)) is not None]
    if not rooms:
        return None
    return Room(min(room.limit for room in rooms), min(room.free for room in rooms))


def processors() -> float | None:
    """Processors whose time the limits leave, such as 2.5; None without a limit."""
    return min(
        (n for group in _groups("cpu") if (n := _processors(group)) is not None), default=None
    )


def _room(group: Path) -> Room | None:
    files = _VERSION_1 if (group / _VERSION_1.used).exists() else _VERSION_2
    stat = {}
    for line in _text(group / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if (n := _number(value)) is not None:
            stat[name] = n
    limits = [n for name in files.limits if (n := _number(_text(group / name))) is not None]
    # Version 1 tells of groups above that a container does not see.
    limit = min(*limits, stat.get(_ABOVE, _NO_LIMIT), _NO_LIMIT)
    if limit >= _NO_LIMIT:
        return None
    used = _number(_text(group / files.used)) or 0
    used -= sum(stat.get(name, 0) for name in files.dropped)
    return Room(limit, min(limit, max(0, limit - used)))


def _processors(group: Path) -> float | None:
    words = _text(group / "cpu.max").split()
    if not words:  # version 1
        words = [_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    numbers = [_number(word) for word in words]  # "max" and -1 are none
    if len(numbers) != 2 or numbers[0] is None or not numbers[1]:
        return None
    return numbers[0] / numbers[1]


def _groups(controller: str) -> Iterator[Path]:
    """Folders of the groups that this process is in, its own first."""
    own = {}
    for line in _text(_PROC / "cgroup").splitlines():
        names, _, path = line.partition(":")[2].partition(":")
        own.update(dict.fromkeys(names.split(","), path))  # the name in version 2 is ""
    for line in _text(_PROC / "mountinfo").splitlines():
        place, _, system = line.partition(" - cgroup")
        if system.startswith("2 "):
            group = own.get("")
        elif controller in system.rpartition(" ")[2].split(","):
            group = own.get(controller)
        else:
            continue
        words = place.split()
        if group and len(words) > 4:
            root, mounted = map(_unescaped, words[3:5])
            yield from _upwards(Path(mounted), group, root)


def _upwards(mounted: Path, path: str, root: str) -> Iterator[Path]:
    """Folders of a group and those above it, where the group ``root`` is the one mounted."""
    group = Path(path)
    if group.is_relative_to(root) and ".." not in group.parts:
        below = group.relative_to(root)
        yield from (mounted / one for one in (below, *below.parents) if one != Path())
    yield mounted  # all that is seen of a group in another place


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _text(file: Path) -> str:
    """The content of a file; "" where there is none."""
    try:
        return file.read_text("utf-8", "surrogateescape").strip()
    except (OSError, ValueError):
        return ""


def _number(text: str) -> int | None:
    return int(text) if _DIGITS.fullmatch(text) else None
