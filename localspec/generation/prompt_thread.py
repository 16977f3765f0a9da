"""Makes prompts in separate threads: a chat template may take seconds, and replies run on.

One thread makes the prompts that take no time, one after the other. Those that may take long, and
grammars that were not tried out yet, have a few threads beside it: nobody else waits for them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from localspec.core.errors import Interrupted, UsageError
from localspec.generation.preparation import Preparation
from localspec.generation.prepared import Prepared
from localspec.generation.reply_job import Job

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Call:
    """A function to be called between two prompts."""

    work: Callable[[], Any]
    result: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class Ready:
    """A job with its prompt."""

    job: Job
    prepared: Prepared


class TakesPrompts(Protocol):
    """The object that runs jobs whose prompts are made: the scheduler."""

    @property
    def closed(self) -> bool:
        """Whether it takes no more."""
        ...

    def ready(self, ready: Ready) -> None:
        """Take a job whose prompt is made. Called in the thread of prompts."""
        ...


_SLOW = 3
"""Threads for what may take long."""


class PromptThread:
    """Makes one prompt after the other. The threads start with the first prompt for them."""

    def __init__(self, preparation: Preparation, taker: TakesPrompts) -> None:
        self._preparation = preparation
        self._taker = taker
        self._jobs: queue.SimpleQueue[Job | _Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._long: queue.SimpleQueue[Job | _Call | None] = queue.SimpleQueue()
        self._slow: list[threading.Thread] = []
        self._busy = 0
        """Tasks that take long and are not done yet."""

    def prepare(self, job: Job) -> None:
        """Make the prompt of a job, after those before it."""
        with self._lock:
            self._start()
            self._jobs.put(job)

    def call(self, work: Callable[[], _T], *, long: bool = False) -> _T:
        """Do something that needs the vocabulary or the template, and return what it returns; if it
        is ``long``, where it may take its time.

        Raises:
            UsageError: closed.
            Exception: what ``work`` raises.
        """
        call = _Call(work)
        with self._lock:
            if self._closed:
                raise UsageError("this runtime is closed")
            if long:
                self._put_long(call)
            else:
                self._start()
                self._jobs.put(call)
        result: _T = call.result.result()
        return result

    def warm_grammars(self) -> None:
        """Have the first grammar prepared for, soon."""
        with self._lock:
            self._start()
            self._jobs.put(_Call(self._preparation.warm_grammars))

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="localspec prompts", daemon=True)
            thread.start()  # may fail, and is tried again with the next prompt
            self._thread = thread

    def close(self) -> None:
        """Wait until the prompts begun are made or given up; the taker must be closed."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)
            thread = self._thread
        if thread is not None:
            thread.join()
        for _ in self._slow:
            self._long.put(None)
        for slow in self._slow:
            slow.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if isinstance(job, _Call):
                self._run_call(job)
                continue
            if self._taker.closed:
                job.interrupt.set()
            if not job.over:
                self._begin(job)

    def _begin(self, job: Job) -> None:
        """Prepare a job here, or have it done where it may take its time."""
        try:
            if long := self._preparation.takes_long(job.request):
                with self._lock:
                    self._put_long(job)
        except Exception as error:  # noqa: BLE001 - raised to whoever reads the reply
            job.fail(error)
            return
        if not long:
            self._prepare(job)

    def _put_long(self, task: Job | _Call) -> None:
        """Have it done in a thread for what may take long; the lock is held."""
        if min(self._busy + 1, _SLOW) > len(self._slow):
            name = "localspec long prompts"
            thread = threading.Thread(target=self._run_long, name=name, daemon=True)
            thread.start()
            self._slow.append(thread)
        self._busy += 1
        self._long.put(task)

    def _run_long(self) -> None:
        while (task := self._long.get()) is not None:
            if isinstance(task, _Call):
                self._run_call(task)
            else:
                if self._taker.closed:
                    task.interrupt.set()
                if not task.over:
                    self._prepare(task)
            with self._lock:
                self._busy -= 1

    def _run_call(self, call: _Call) -> None:
        if self._taker.closed:
            call.result.set_exception(UsageError("this runtime is closed"))
            return
        try:
            call.result.set_result(call.work())
        except Exception as error:  # noqa: BLE001 - raised where the result is waited for
            call.result.set_exception(error)

    def _prepare(self, job: Job) -> None:
        def cancelled() -> bool:
            return job.over or self._taker.closed

        try:
            prepared = self._preparation.prepared(job.request, cancelled, job.tell)
        except Interrupted:
            job.interrupt.set()  # it ends with `Finished`, as wherever it is interrupted
        except Exception as error:  # noqa: BLE001 - raised to whoever reads the reply
            job.fail(error)
        else:
            self._taker.ready(Ready(job, prepared))
