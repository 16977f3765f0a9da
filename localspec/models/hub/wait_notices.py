"""Notices about waits for the Hub, for a command or an interface to show."""

from __future__ import annotations

import threading


class WaitNotices:
    """Receives notices about waits; setting ``cancel`` ends a wait. This class shows nothing."""

    def __init__(self, cancel: threading.Event | None = None) -> None:
        self.cancel = cancel or threading.Event()

    def show(self, why: str, left: float) -> None:
        """A wait goes on: called about once a second; ``left`` in seconds."""

    def clear(self) -> None:
        """The wait is over."""


def wait_text(why: str, left: float) -> str:
    """One line about a wait."""
    return f"{why}; again in {max(1, round(left))} s"
