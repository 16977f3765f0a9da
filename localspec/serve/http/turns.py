"""One thread for what takes long of large bodies and answers, which callers have in turn."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Step:
    work: Callable[[], Any]
    result: Future[Any]

    def do(self) -> None:
        if not self.result.set_running_or_notify_cancel():
            return  # who waited for it has left
        try:
            self.result.set_result(self.work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is waited for
            self.result.set_exception(error)


class Turns:
    """Does a step of one caller after a step of another."""

    def __init__(self, name: str) -> None:
        """``name`` is that of the thread."""
        self._thread = ThreadPoolExecutor(1, name)
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Step]] = {}
        """By caller; whose turn is next comes first."""

    def put(self, owner: str, work: Callable[[], _T], *, first: bool = False) -> Future[_T]:
        """What ``work`` returns, once it was its turn. ``owner`` has sent what it has to do with;
        ``first``: it comes before all else of that caller.
        """
        result: Future[_T] = Future()
        step = _Step(work, result)
        with self._lock:
            steps = self._waiting.setdefault(owner, deque())
            if first:
                steps.appendleft(step)
            else:
                steps.append(step)
        self._thread.submit(self._next)
        return result

    def _next(self) -> None:
        with self._lock:
            owner = next(iter(self._waiting))
            steps = self._waiting.pop(owner)
            step = steps.popleft()
            if steps:
                self._waiting[owner] = steps
        step.do()
