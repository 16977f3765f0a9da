"""Makes prompts in separate threads: a chat template may take seconds, and replies run on.

One thread makes the prompts that take no time, one after the other. Those that may take long, and
grammars that were not tried out yet, have a few threads beside it: nobody else waits for them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from localspec.core.errors import Interrupted, UsageError
from localspec.generation.preparation import Preparation
from localspec.generation.prepared import Prepared
from localspec.generation.reply_job import Job

_T = TypeVar("_T")
_Tasks = queue.SimpleQueue[Callable[[], None] | None]
"""What a thread does, in its order; None ends it."""

_SLOW = 3
"""Threads for what may take long."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A job with its prompt."""

    job: Job
    prepared: Prepared


class PromptThread:
    """Makes one prompt after the other. The threads start with the first prompt for them."""

    def __init__(
        self,
        preparation: Preparation,
        taker_closed: Callable[[], bool],
        ready: Callable[[Ready], None],
    ) -> None:
        """``ready`` takes a job whose prompt is made, and is called in the thread of prompts; once
        the taker is closed no prompt is made any more.
        """
        self._preparation = preparation
        self._taker_closed = taker_closed
        self._ready = ready
        self._lock = threading.Lock()
        self._tasks: _Tasks = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._long: _Tasks = queue.SimpleQueue()
        self._slow: list[threading.Thread] = []
        self._busy = 0
        """Tasks that take long and are not done yet."""

    def prepare(self, job: Job) -> None:
        """Make the prompt of a job, after those before it."""
        with self._lock:
            self._put(partial(self._begin, job))

    def call(self, work: Callable[[], _T], *, long: bool = False) -> _T:
        """Do something that needs the vocabulary or the template, and return what it returns; if it
        is ``long``, where it may take its time.

        Raises:
            UsageError: closed.
            Exception: what ``work`` raises.
        """
        result: Future[_T] = Future()
        with self._lock:
            if self._closed:
                raise UsageError("this runtime is closed")
            (self._put_long if long else self._put)(partial(self._call, work, result))
        return result.result()

    def warm_grammars(self) -> None:
        """Have the first grammar prepared for, soon."""
        with self._lock:
            self._put(partial(self._call, self._preparation.warm_grammars, Future()))

    def close(self) -> None:
        """Wait until the prompts begun are made or given up; the taker must be closed."""
        with self._lock:
            self._closed = True
            self._tasks.put(None)
            thread = self._thread
        if thread is not None:
            thread.join()
        for _ in self._slow:
            self._long.put(None)
        for slow in self._slow:
            slow.join()

    def _put(self, task: Callable[[], None]) -> None:
        """Have it done in the thread of prompts; the lock is held."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="localspec prompts", daemon=True)
            thread.start()  # may fail, and is tried again with the next prompt
            self._thread = thread
        self._tasks.put(task)

    def _put_long(self, task: Callable[[], None]) -> None:
        """Have it done in a thread for what may take long; the lock is held."""
        if min(self._busy + 1, _SLOW) > len(self._slow):
            name = "localspec long prompts"
            thread = threading.Thread(target=self._run_long, name=name, daemon=True)
            thread.start()
            self._slow.append(thread)
        self._busy += 1
        self._long.put(task)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _run_long(self) -> None:
        while (task := self._long.get()) is not None:
            task()
            with self._lock:
                self._busy -= 1

    def _call(self, work: Callable[[], Any], result: Future[Any]) -> None:
        if self._taker_closed():
            result.set_exception(UsageError("this runtime is closed"))
            return
        try:
            result.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised where the result is waited for
            result.set_exception(error)

    def _begin(self, job: Job) -> None:
        """Prepare a job here, or have it done where it may take its time."""
        if self._is_over(job):
            return
        try:
            if long := self._preparation.takes_long(job.request):
                with self._lock:
                    self._put_long(partial(self._prepare, job))
        except Exception as error:  # noqa: BLE001 - raised to whoever reads the reply
            job.fail(error)
            return
        if not long:
            self._prepare(job)

    def _is_over(self, job: Job) -> bool:
        """Whether nobody waits for a job, as once the taker is closed."""
        if self._taker_closed():
            job.interrupt.set()
        return job.over

    def _prepare(self, job: Job) -> None:
        if self._is_over(job):
            return

        def cancelled() -> bool:
            return job.over or self._taker_closed()

        try:
            prepared = self._preparation.prepared(job.request, cancelled, job.tell)
        except Interrupted:
            job.interrupt.set()  # it ends with `Finished`, as wherever it is interrupted
        except Exception as error:  # noqa: BLE001 - raised to whoever reads the reply
            job.fail(error)
        else:
            self._ready(Ready(job, prepared))
