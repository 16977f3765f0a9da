"""What a proof tells the process that started it: a line before each step, and how it ended."""

from __future__ import annotations

import json
import signal
import sys

WRONG = 3
"""Exit status where something else is computed."""
SILENCE_S = 60
"""A step that takes longer hangs: it ends this process by SIGALRM."""


def report(limit: int = SILENCE_S, **fields: str | float) -> None:
    """Tell the parent what comes next, which may take ``limit`` seconds."""
    if hasattr(signal, "alarm"):
        signal.alarm(limit)
    sys.stdout.write(json.dumps({**fields, "limit": limit}) + "\n")
    sys.stdout.flush()
