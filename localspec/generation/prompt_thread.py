"""Makes prompts in separate threads: a chat template may take seconds, and replies run on.

One thread makes the prompts that take no time, one after the other. Those that may take long, and
grammars that were not tried out yet, have a few threads beside it: nobody else waits for them.
Callers have both in turn, as they have the models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from localspec.core.errors import Interrupted, UsageError
from localspec.core.threads_in_turn import ThreadsInTurn
from localspec.generation.preparation import Preparation
from localspec.generation.prepared import Prepared
from localspec.generation.reply_job import Job

_T = TypeVar("_T")

_SLOW = 3
"""Threads for what may take long; one more is for callers that have none of them. As many processes
try out grammars, render templates and decode pictures.
"""


@dataclass(frozen=True, slots=True)
class Ready:
    """A job with its prompt."""

    job: Job
    prepared: Prepared

    @property
    def caller(self) -> str:
        """See `localspec.core.in_turn.Waits`."""
        return self.job.request.caller

    @property
    def over(self) -> bool:
        """See `localspec.core.in_turn.Waits`."""
        return self.job.over


@dataclass(frozen=True, slots=True)
class _Step:
    """A job that has something done."""

    job: Job
    work: Callable[[Job], None]

    @property
    def caller(self) -> str:
        return self.job.request.caller

    @property
    def over(self) -> bool:
        return self.job.over

    def run(self) -> None:
        self.work(self.job)


class PromptThread:
    """Makes prompts. The threads start with the first prompt for them."""

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
        self._quick = ThreadsInTurn("localspec prompts", 1)
        self._slow = ThreadsInTurn("localspec long prompts", _SLOW, spare=1)

    def prepare(self, job: Job) -> None:
        """Make the prompt of a job, when it is its caller's turn."""
        self._quick.add(_Step(job, self._begin))

    def call(self, caller: str, work: Callable[[], _T], *, long: bool = False) -> _T:
        """Do something that needs the vocabulary or the template, and return what it returns; if it
        is ``long``, where it may take its time.

        Raises:
            UsageError: closed.
            Exception: what ``work`` raises.
        """

        def unless_closed() -> _T:
            if self._taker_closed():
                raise UsageError("this runtime is closed")
            return work()

        return (self._slow if long else self._quick).do(caller, unless_closed).result()

    def warm_grammars(self) -> None:
        """Have the first grammar prepared for, soon."""
        self._quick.do("", self._preparation.warm_grammars)

    def close(self) -> None:
        """Wait until the prompts begun are made or given up; the taker must be closed."""
        self._quick.close()
        self._slow.close()

    def _begin(self, job: Job) -> None:
        """Prepare a job here, or have it done where it may take its time."""
        if self._is_over(job):
            return
        try:
            if long := self._preparation.takes_long(job.request):
                self._slow.add(_Step(job, self._prepare))
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
            prepared = self._preparation.prepared(job.request, cancelled, job.tell, job.blend)
        except Interrupted:
            job.interrupt.set()  # it ends with `Finished`, as wherever it is interrupted
        except Exception as error:  # noqa: BLE001 - raised to whoever reads the reply
            job.fail(error)
        else:
            self._ready(Ready(job, prepared))
