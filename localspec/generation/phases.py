"""What the thread that owns the models did longest beside passes: all replies wait for it.

Computing of the thread itself is counted, since what a busy machine takes from it is not its doing.
Passes are not: everybody has a share in them. What a round does for a grammar has limits of its
own, see `localspec.grammar.matching`.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Phases:
    """The longest time of each phase of a turn; seconds of computing."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}

    def run(self, name: str, work: Callable[[], object]) -> None:
        """Do it, and note how long it took."""
        began = time.thread_time()
        try:
            work()
        finally:
            seconds = time.thread_time() - began
            if seconds > self.longest.get(name, 0.0):
                self.longest[name] = seconds
