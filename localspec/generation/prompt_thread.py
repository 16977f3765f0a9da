"""Makes prompts in a separate thread: a chat template may take seconds, and replies run on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from localspec.errors import Interrupted, UsageError
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


class PromptThread:
    """Makes one prompt after the other. The thread starts with the first."""

    def __init__(self, preparation: Preparation, taker: TakesPrompts) -> None:
        self._preparation = preparation
        self._taker = taker
        self._jobs: queue.SimpleQueue[Job | _Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def prepare(self, job: Job) -> None:
        """Make the prompt of a job, after those before it."""
        with self._lock:
            self._start()
            self._jobs.put(job)

    def call(self, work: Callable[[], _T]) -> _T:
        """Do something that needs the vocabulary or the template, and return what it returns.

        Raises:
            UsageError: closed.
            Exception: what ``work`` raises.
        """
        call = _Call(work)
        with self._lock:
            if self._closed:
                raise UsageError("this runtime is closed")
            self._start()
            self._jobs.put(call)
        result: _T = call.result.result()
        return result

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="localspec prompts", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait until the prompts begun are made or given up; the taker must be closed."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if isinstance(job, _Call):
                self._run_call(job)
                continue
            if self._taker.closed:
                job.interrupt.set()
            if not job.over:
                self._prepare(job)

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
            prepared = self._preparation.prepared(job.request, cancelled)
        except Interrupted:
            job.interrupt.set()  # it ends with `Finished`, as wherever it is interrupted
        except Exception as error:  # noqa: BLE001 - raised to whoever reads the reply
            job.fail(error)
        else:
            self._taker.ready(Ready(job, prepared))


__all__ = ["PromptThread", "Ready", "TakesPrompts"]
