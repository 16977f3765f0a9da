"""Who waits for the Hub: a command or interface that shows it."""

from __future__ import annotations

import threading


class WaitNotices:
    """Told how long a wait still takes, and may end it by ``cancel``. This one shows nothing."""

    def __init__(self, cancel: threading.Event | None = None) -> None:
        self.cancel = cancel or threading.Event()

    def show(self, why: str, left: float) -> None:
        """Called about once a second; ``left`` in seconds."""

    def clear(self) -> None:
        """The wait is over."""


def wait_text(why: str, left: float) -> str:
    """A wait as a line."""
    return f"{why}; again in {max(1, round(left))} s"
