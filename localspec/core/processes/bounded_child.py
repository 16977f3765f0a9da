"""The inside of a process that works within limits, see `localspec.core.processes.bounded`."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def limit_memory(most: int | None) -> None:
    """Refuse more address space than ``most`` bytes; None: as much as there is. Windows has no such
    limit.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        within = hard == resource.RLIM_INFINITY or (most is not None and most < hard)
        soft = most if most is not None and within else hard
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def address_space() -> int | None:
    """Bytes of address space that this process has; None where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, ImportError):
        import resource

        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        return pages * resource.getpagesize()
    return None


def answer_lines(
    answer: Callable[[dict[str, Any]], dict[str, Any]], seconds: float, *, computing: bool
) -> None:
    """Answer requests until stdin ends. One that takes more than ``seconds`` ends the process:
    of the clock, or of ``computing``, which a busy machine does not spend.
    """
    for line in sys.stdin.buffer:
        _arm(seconds, computing=computing)
        found = json.dumps(answer(json.loads(line))).encode() + b"\n"
        _arm(0, computing=computing)
        sys.stdout.buffer.write(found)
        sys.stdout.buffer.flush()


def _arm(seconds: float, *, computing: bool) -> None:
    """End this process after ``seconds``, whatever it is doing; 0 cancels that."""
    if hasattr(signal, "setitimer"):
        which = signal.ITIMER_PROF if computing else signal.ITIMER_REAL
        signal.setitimer(which, seconds)
