"""A few threads for the tasks of several callers, who have them in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from localspec.core.errors import UsageError
from localspec.core.in_turn import Places, Waits

_T = TypeVar("_T")


class Task(Waits, Protocol):
    """Something to be done in a thread."""

    def run(self) -> None:
        """Do it. Raises nothing: whoever waits for it is told of errors."""
        ...


class Call(Generic[_T]):
    """Work whose result somebody waits for."""

    def __init__(self, caller: str, work: Callable[[], _T]) -> None:
        self.caller = caller
        self._work = work
        self.result: Future[_T] = Future()
        """What ``work`` returns or raises; nobody wants it once that is cancelled."""

    @property
    def over(self) -> bool:
        """See `Waits`."""
        return self.result.cancelled()

    def run(self) -> None:
        """Do it, unless it is over."""
        if not self.result.set_running_or_notify_cancel():
            return
        try:
            self.result.set_result(self._work())
        except Exception as error:  # noqa: BLE001 - raised where the result is waited for
            self.result.set_exception(error)
            # The error leads to this frame: with the result here, what the work used would stay
            # until Python looks for garbage, and that may be many megabytes.
            del self


class ThreadsInTurn:
    """Threads that start with the first tasks for them."""

    def __init__(self, name: str, most: int, spare: int = 0) -> None:
        """See `Places` for ``most`` and ``spare``."""
        self._name = name
        self._most = most + spare
        self._places = Places[Task](most, spare)
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def add(self, task: Task, *, first: bool = False) -> None:
        """Have a task done, once it is its caller's turn; see `InTurn.add` for ``first``.

        Raises:
            UsageError: closed.
            RuntimeError: a thread for it cannot be started now.
        """
        with self._changed:
            if self._closed:
                raise UsageError("this runtime is closed")
            if len(self._threads) < min(len(self._places) + 1, self._most):
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()  # may fail, and is tried again with the next task
                self._threads.append(thread)
            self._places.tidy()  # what was cancelled may hold many megabytes, counted no more
            self._places.add(task, first=first)
            self._changed.notify_all()

    def do(self, caller: str, work: Callable[[], _T], *, first: bool = False) -> Future[_T]:
        """The result of ``work``, which is done as a task. Raises what `add` does."""
        call = Call(caller, work)
        self.add(call, first=first)
        return call.result

    def close(self) -> None:
        """End the threads, once all tasks are done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            task.run()
            caller = task.caller
            del task  # while this thread waits nothing of it stays
            with self._changed:
                self._places.leave(caller)
                self._changed.notify_all()  # where a caller's last place was, two may have one

    def _next(self) -> Task | None:
        """The next task; None once this is closed, and nothing waits."""
        with self._changed:
            while (task := self._places.next()) is None:
                if self._closed and not self._places.waiting:
                    return None
                self._changed.wait()
            return task
