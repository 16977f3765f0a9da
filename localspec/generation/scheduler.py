"""Runs the requests of one loaded pair: one thread owns the models and computes for all of them.

Each turn of its loop lets requests in that wait for a sequence, reads a part of one prompt, and
plays one decode round for all replies that are running (continuous batching, Yu et al. 2022,
"Orca"). Prompts are read in passes of their own: in one pass with a round they would make
llama.cpp cut it into parts. While replies run, a part takes no longer than `PAUSE` by the speed
measured so far.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from localspec.core.events import Finished, Notice, ReplyEvent
from localspec.core.interrupt import Interrupt
from localspec.core.reply_request import ReplyRequest
from localspec.decode.round import RoundResult, decode_round
from localspec.drafters.base import Off
from localspec.errors import Interrupted, QueueFullError, UsageError
from localspec.generation.grammars import incomplete
from localspec.generation.pass_stop import PassStop
from localspec.generation.prefill import PART, Prefill
from localspec.generation.preparation import Preparation
from localspec.generation.prompt_thread import PromptThread, Ready
from localspec.generation.reply_job import Job, Running
from localspec.generation.reply_stream import ReplyStream
from localspec.generation.runnable import RunnablePair
from localspec.policy import Plain, Policy
from localspec.prefix_cache.cache import PrefixCache
from localspec.prefix_cache.files import KvStore
from localspec.processes.activity import doing

log = logging.getLogger("localspec.scheduler")

MOST_WAITING = 128
"""Requests that may wait."""
PAUSE = 0.15
"""Seconds that a part of a prompt may take while other replies run."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Call:
    """Something that is done on the models between two rounds."""

    work: Callable[[Sequence[int]], Any]
    """Gets the sequences that no reply uses."""
    needs_sequence: bool
    """Whether it waits until there is one."""
    result: Future[Any] = field(default_factory=Future)

    def run(self, free: Sequence[int]) -> None:
        """Do it and hand over the result, or the error."""
        try:
            self.result.set_result(self.work(free))
        except Exception as error:  # noqa: BLE001 - it is raised where the result is waited for
            self.result.set_exception(error)


_Message = Ready | _Call | None
"""None: look whether something was interrupted."""


class Scheduler:
    """Owner of a pair's models. All methods may be called from any thread."""

    def __init__(self, pair: RunnablePair, most_waiting: int = MOST_WAITING) -> None:
        self._pair = pair
        self._most_waiting = most_waiting
        self.prefix_cache = PrefixCache(pair.target, pair.drafter, pair.cache_bytes)
        self.preparation = Preparation(
            pair.target_model,
            pair.target,
            pair.verifier,
            self.prefix_cache,
            drafts=not isinstance(pair.drafter, Off),
        )
        self._prompts = PromptThread(self.preparation, self)
        self.prefill = Prefill(pair.target, pair.drafter, self.prefix_cache)
        self._stop = PassStop(pair.stop)
        self._messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the three below
        self._thread: threading.Thread | None = None
        self._jobs: set[Job] = set()
        self._closed = False
        # Of the thread alone:
        self._ready: deque[Ready] = deque()
        self._calls: deque[_Call] = deque()
        self._running: list[Running] = []
        self._turn = itertools.count()
        self._reported: set[str] = set()

    # -- from any thread -----------------------------------------------------------------------

    def submit(
        self, request: ReplyRequest, interrupt: Interrupt, policy: Policy | None = None
    ) -> ReplyStream:
        """Have a request answered; ``policy`` plans its drafts in place of the pair's own.

        Raises:
            QueueFullError: as many requests as may wait are waiting.
            UsageError: closed.
        """
        if not request.draft:
            policy = Plain("switched off for this reply")
        job = Job(request, policy, interrupt, self)
        with self._lock:
            self._jobs = {known for known in self._jobs if not known.over}
            waiting = sum(known.waiting for known in self._jobs)
            if waiting >= self._most_waiting:
                raise QueueFullError(f"{waiting} requests are waiting already; try again later")
            self._start()
            self._jobs.add(job)
        interrupt.watch(job)
        self._prompts.prepare(job)
        return ReplyStream(job.mailbox, interrupt)

    def call(self, work: Callable[[Sequence[int]], _T], *, needs_sequence: bool = False) -> _T:
        """Do something on the models between two rounds, and return what it returns. It gets the
        sequences that no reply uses.

        Raises:
            UsageError: closed.
            Exception: what ``work`` raises.
        """
        call = _Call(work, needs_sequence)
        with self._lock:
            self._start()
            self._messages.put(call)
        result: _T = call.result.result()
        return result

    def ready(self, ready: Ready) -> None:
        """See `localspec.generation.prompt_thread.TakesPrompts`."""
        self._messages.put(ready)

    def wake(self) -> None:
        """See `localspec.generation.reply_job.Wakes`."""
        self._stop.look()
        self._messages.put(None)

    def interrupt(self) -> None:
        """End all replies, those that wait too."""
        for job in list(self._jobs):
            job.interrupt.set()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """End all replies as interrupted, and the thread. May be called twice."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._stop.close()
        self._messages.put(None)
        self._prompts.close()
        if thread is not None:
            thread.join()
            atexit.unregister(self.close)

    def _start(self) -> None:
        """Start the thread with the first task.

        Raises:
            UsageError: closed.
        """
        if self._closed:
            raise UsageError("this runtime is closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="localspec models", daemon=True)
            self._thread.start()
            atexit.register(self.close)  # llama.cpp must not compute while the process ends

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        error: BaseException = UsageError("this runtime is closed")
        try:
            while not self._closed:
                self._take_messages()
                self._end_stopped()
                self._run_calls()
                self._admit()
                self._read()
                self._decode()
            for running in [*self._running]:
                self._finish(running)
        except BaseException as defect:
            log.exception("the scheduler failed")
            error = defect  # nobody must wait for ever
        with self._lock:
            self._closed = True
            jobs = [*self._jobs]
        self._take_messages(wait=False)
        for call in self._calls:
            call.result.set_exception(error)
        for job in jobs:
            if isinstance(error, UsageError):
                job.interrupt.set()
            job.fail(error)

    def _take_messages(self, *, wait: bool = True) -> None:
        wait = wait and not (self._running or (self._ready and self._free()))
        while True:
            try:
                message = self._messages.get() if wait else self._messages.get_nowait()
            except queue.Empty:
                return
            wait = False
            if isinstance(message, Ready):
                self._ready.append(message)
            elif message is not None:
                self._calls.append(message)

    def _free(self) -> list[int]:
        """Sequences that no reply uses."""
        used = {running.seq for running in self._running}
        return [seq for seq in range(self._pair.target.sequences) if seq not in used]

    def _end_stopped(self) -> None:
        if any(ready.job.over for ready in self._ready):
            self._ready = deque(ready for ready in self._ready if not ready.job.over)
        for running in [*self._running]:
            if running.stopped:
                self._finish(running)

    def _run_calls(self) -> None:
        for call in [*self._calls]:
            free = self._free()
            if free or not call.needs_sequence:
                self._calls.remove(call)
                with self._stop.computing_for(()):
                    call.run(free)

    def _admit(self) -> None:
        """Let those in that have waited longest, as far as there are sequences."""
        while self._ready and (free := self._free()):
            ready = self._ready.popleft()
            if ready.job.begin():
                doing(f"answering with {self._pair.target_model.path}")
                seq = self.prefix_cache.choose(ready.prepared.prompt, ready.prepared.owner, free)
                self._running.append(self._begun(ready, seq))
                self._guarded(self._running[-1], self._begin)

    def _begun(self, ready: Ready, seq: int) -> Running:
        job, pair = ready.job, self._pair
        return Running(
            job,
            ready.prepared,
            ready.prepared.generation(seq, job.policy),
            pair.drafter if job.request.draft else Off(),
            job.policy or pair.control.policy,
        )

    def _begin(self, running: Running) -> None:
        running.job.mailbox.put(running.prepared.notices)
        running.job.mailbox.put(self.prefill.begin(running.generation))

    def _read(self) -> None:
        """Read a part of one prompt: in turns of the one that waits longest, and of the one that
        has the least to read.
        """
        reading = [running for running in self._running if running.reading]
        if reading:
            shortest = min(reading, key=lambda running: self.prefill.unread(running.generation))
            self._guarded((reading[0], shortest)[next(self._turn) % 2], self._read_part)

    def _read_part(self, running: Running) -> None:
        waited_for = any(not other.reading for other in self._running)
        most = self.prefill.part(PAUSE) if waited_for else PART
        generation = running.generation
        events = self.prefill.read(generation, running.drafter, running.policy, most)
        running.reading = self.prefill.unread(generation) > 0
        running.job.mailbox.put(events)

    def _guarded(self, running: Running, step: Callable[[Running], None]) -> None:
        """Do something for one reply alone; if that fails, it ends alone."""
        try:
            with self._stop.computing_for([running.job.interrupt]):
                step(running)
        except Interrupted:
            self._finish(running)
        except Exception as error:  # noqa: BLE001 - raised to whoever reads the reply
            self._fail(running, error)

    def _decode(self) -> None:
        """One round for all replies whose prompts are read."""
        pair = self._pair
        decoding = [running for running in self._running if not running.reading]
        if not decoding:
            return
        decoding.sort(key=lambda running: running.seq)  # llama.cpp splits passes of other orders
        requests = [running.generation.request for running in decoding]
        try:
            with self._stop.computing_for([running.job.interrupt for running in decoding]):
                results = decode_round(requests, pair.target, pair.drafter, pair.control.policy)
        except Interrupted:
            for running in decoding:
                self._finish(running)
            return
        except Exception as error:  # noqa: BLE001 - raised to all who read their replies
            for running in [*self._running]:
                self._fail(running, error)
            return
        by_seq = {result.request.seq: result for result in results}
        notices = self._notices(results)
        for running in decoding:
            result = by_seq.get(running.seq)
            self._deliver(running, result, notices, alone=len(requests) == 1)

    def _deliver(
        self,
        running: Running,
        result: RoundResult | None,
        notices: Sequence[Notice],
        *,
        alone: bool,
    ) -> None:
        """Hand over the events of a round, and end the reply where it is complete."""
        generation = running.generation
        if result is None:
            error = generation.request.error
            self._fail(running, error or AssertionError("a request without result or error"))
            return
        events = generation.events(result, running.policy, alone=alone)
        if generation.finish is None:
            running.job.mailbox.put([*events, *notices])
        else:
            self._finish(running, [*events, *notices])

    def _notices(self, results: Sequence[RoundResult]) -> list[Notice]:
        """What users should know after a round; each problem is reported once."""
        found: list[Notice] = []
        problem = self._pair.drafter.problem
        if problem is not None:
            found += self._report(problem)
        if self._pair.watchdog is not None and results and not self._closed:
            width = sum(1 + len(result.draft) for result in results)
            found += self._pair.watchdog.look((width, results[0].verify_seconds))
        return found

    def _report(self, problem: str) -> list[Notice]:
        """A notice of the problem, the first time that it occurs."""
        if problem in self._reported:
            return []
        self._reported.add(problem)
        return [Notice(problem)]

    # -- ends ----------------------------------------------------------------------------------

    def _finish(self, running: Running, events: Sequence[ReplyEvent] = ()) -> None:
        """End a reply after its last ``events``; as interrupted, where it is not complete."""
        self._running.remove(running)
        generation = running.generation
        if generation.finish is None:
            generation.interrupt()
        self.prefill.finish(generation)
        last = [*events, *self._save_costs()]
        capacity = self._pair.target.capacity
        if generation.finish == "length" and len(generation.tokens) > capacity:
            last.append(Notice(f"the reply was cut: the context of {capacity} tokens is full"))
        reply = generation.reply(running.policy)
        last += incomplete(running.prepared.constraint, reply.finish_reason)
        conversation = self.preparation.remember(running.prepared, reply)
        if running.forgotten:
            self.prefill.forget(running.seq)
        elif conversation is not None:
            self.prefix_cache.describe(running.seq, conversation)
        self._over(running)
        running.job.end([*last, Finished(reply)])

    def _fail(self, running: Running, error: Exception) -> None:
        """End a reply with an error; its sequence is not trusted any more."""
        self._running.remove(running)
        self.prefill.reset(running.seq)
        self._over(running)
        running.job.fail(error)

    def _over(self, running: Running) -> None:
        running.job.interrupt.watch(None)
        with self._lock:
            self._jobs.discard(running.job)

    def _save_costs(self) -> list[Notice]:
        """Save the measured costs for the next session, once nothing runs."""
        if self._running:
            return []
        try:
            self._pair.control.save()
        except OSError as error:
            return self._report(
                f"measured speeds cannot be kept for the next start: {error.strerror}; free some "
                "space, or set LOCALSPEC_HOME to a writable folder",
            )
        return []

    # -- calls ---------------------------------------------------------------------------------

    def forget(self) -> None:
        """Empty all sequences; those in use, when their replies end.

        Raises:
            UsageError: closed.
        """
        self.call(self._forget)

    def _forget(self, free: Sequence[int]) -> None:
        for seq in free:
            self.prefill.forget(seq)
        self.prefix_cache.clear()
        for running in self._running:
            running.forgotten = True

    def use_disk(self, store: KvStore) -> None:
        """From now on use states of earlier sessions, and save them in `rest`.

        Raises:
            UsageError: closed.
        """
        self.call(lambda _free: self.prefix_cache.use_disk(store))

    def rest(self, cancelled: Callable[[], bool]) -> None:
        """Save states to disk, if nothing runs, until something is to be done.

        Raises:
            UsageError: closed.
        """

        def save(free: Sequence[int]) -> None:
            if len(free) == self._pair.target.sequences and not self._ready:
                self.prefix_cache.rest(lambda: cancelled() or not self._messages.empty())

        self.call(save)


__all__ = ["MOST_WAITING", "PAUSE", "Scheduler"]
