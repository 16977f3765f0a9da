"""A process that ends when its parent does, also where that was killed and says nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
_LOOK_S = 0.5


def end_with_parent() -> None:
    """End this process by SIGKILL when its parent has ended, whatever it is doing then.

    Linux does it itself. Elsewhere, as on macOS, a thread looks twice a second: an orphan gets
    another parent. Native code does not stop it, since calls into llama.cpp release Python's lock.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    else:
        watch()


def watch() -> None:
    """Start the thread that looks."""
    thread = threading.Thread(target=_until_orphaned, args=(os.getppid(),), name="parent")
    thread.daemon = True
    thread.start()


def _until_orphaned(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)
