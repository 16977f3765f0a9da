"""Times of an engine: after which one that is idle is unloaded, how long one in use stays although
another model is waited for, and growing pauses between attempts to start one that does not come up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from localspec.core.errors import EngineError, LocalspecError
from localspec.core.options import Options
from localspec.serve.http.errors import PausedError

_FIRST, _LONGEST = 1.0, 30.0
"""Seconds."""
_PATIENCE = 3.0
"""Longest pause, in seconds, that a request waits for; it is refused otherwise."""
_IN_USE = 1.0
"""A model that was used within so many seconds is in use."""
_LONGEST_STAY = 10.0


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """What a request says of how long its model stays when it has ended."""

    seconds: float | None
    """Negative: for ever; None: what the server was started with."""


class UnloadTimer:
    """Runs while the engine is idle."""

    def __init__(self, seconds: float | None) -> None:
        """``seconds`` None: never."""
        self._usual = self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, seconds: float | None) -> None:
        """What a request asks for, until another one does or the engine is unloaded: a negative
        number for ever, None what the server was started with.
        """
        self._seconds = self._usual if seconds is None else None if seconds < 0 else seconds

    def reset(self) -> None:
        """Another model comes: call nothing, and forget what requests asked for."""
        self.stop()
        self._seconds = self._usual

    @property
    def left(self) -> float | None:
        """Seconds until the engine is unloaded, if no request comes; None: it is not."""
        if self._timer is None:
            return self._seconds
        return max(0.0, self._timer.when() - asyncio.get_running_loop().time())

    def start(self, unload: Callable[[], None]) -> None:
        """Call ``unload`` after the time, counted from now."""
        self.stop()
        if self._seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._unload, unload)

    def stop(self) -> None:
        """Call nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _unload(self, unload: Callable[[], None]) -> None:
        self.reset()
        unload()


class Stay:
    """How long a model in use stays although another one is waited for: as long as loading it took.
    Requests in turns would cost a load each.
    """

    def __init__(self) -> None:
        self._loaded_at = self._left_at = self._seconds = 0.0

    @property
    def age(self) -> float:
        """Seconds since the model was loaded."""
        return time.monotonic() - self._loaded_at

    def begin(self, took: float) -> None:
        """A model is loaded, in so many seconds."""
        self._loaded_at, self._seconds = time.monotonic(), min(took, _LONGEST_STAY)

    def used(self) -> None:
        """A request has ended."""
        self._left_at = time.monotonic()

    def left(self, *, in_use: bool) -> float:
        """Seconds that it stays yet; ``in_use``: there are requests that have not ended."""
        now = time.monotonic()
        used = now if in_use else self._left_at
        return min(self._loaded_at + self._seconds, used + _IN_USE) - now


class RestartPause:
    """How long the next attempt to load a model waits, whichever slot that is in."""

    def __init__(self) -> None:
        self.failures = 0
        """Failed attempts since one lasted."""
        self.error: LocalspecError | None = None
        """Why the last attempt failed; None since one succeeded."""
        self._until = 0.0

    @property
    def left(self) -> float:
        """Seconds until the next attempt; zero or less: it may begin."""
        return self._until - time.monotonic()

    def require_over(self) -> None:
        """Refuse a request for which no attempt begins now.

        Raises:
            LocalspecError: why the last one failed; PausedError where the engine keeps stopping.
        """
        left, error = self.left, self.error
        if left > _PATIENCE and (error is None or isinstance(error, EngineError)):
            raise PausedError(left)
        if left > 0 and error is not None:
            raise error

    def failed(self, error: LocalspecError) -> None:
        """An attempt failed."""
        self.error = error
        self.extend()

    def extend(self) -> None:
        """Pause, twice as long as the last time."""
        self._until = time.monotonic() + min(_LONGEST, _FIRST * 2.0**self.failures)
        self.failures = min(self.failures + 1, 10)

    def forget(self) -> None:
        """An attempt lasted: the next pause is short again."""
        self.failures = 0

    def end(self) -> None:
        """The next attempt begins at once."""
        self.failures, self._until, self.error = 0, 0.0, None


class RestartPauses:
    """That of each model."""

    def __init__(self) -> None:
        self._by_model = dict[str, RestartPause]()

    def of(self, options: Options) -> RestartPause:
        """The pause of the model of some options."""
        return self._by_model.setdefault(options.model, RestartPause())
