"""Runs the requests of one loaded pair: one thread owns the models and computes for all of them.

Each turn of its loop lets requests in that wait for a sequence, reads a part of one prompt, and
plays one decode round for all replies that are running (continuous batching, Yu et al. 2022,
"Orca"); `localspec.generation.replies` does both.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from localspec.core.adapter_file import AdapterFile
from localspec.core.errors import QueueFullError, UsageError
from localspec.core.in_turn import InTurn
from localspec.core.interrupt import Cancelled, Interrupt
from localspec.core.reply_request import ReplyRequest, TakesEvents, Tokenized
from localspec.core.target import AdaptsSequences
from localspec.generation.prefill import Prefill
from localspec.generation.preparation import Preparation
from localspec.generation.prompt_thread import PromptThread, Ready
from localspec.generation.replies import RunningReplies
from localspec.generation.reply_job import Job
from localspec.generation.reply_stream import Mailbox, ReplyStream
from localspec.generation.runnable import RunnablePair
from localspec.generation.tokenizing import tokenized
from localspec.generation.turns import PassStop
from localspec.policy import Policy
from localspec.policy.simple import Plain
from localspec.prefix_cache.cache import PrefixCache
from localspec.prefix_cache.files import KvStore

log = logging.getLogger("localspec.scheduler")

MOST_WAITING = 16_384
"""Requests that may wait; a server lets fewer in (``--queue``)."""
_IDLE_S = 0.5
"""Seconds without work, after which the threads of a pass end: a chat's next turn comes later."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Call:
    """A function to be called with the models between two rounds."""

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
"""None only wakes the thread, to look for interrupts."""


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
            drafters=[member.name for member in pair.drafter.members],
            sight=pair.sight,
            remembers=pair.draft_memory > 0,
            quotes_chats=any(member.quotes_chats for member in pair.drafter.members),
        )
        self.prefill = Prefill(pair.target, pair.drafter, self.prefix_cache)
        self._stop = PassStop(pair.stop)
        self._messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._prompts = PromptThread(self.preparation, lambda: self._closed, self._messages.put)
        self._lock = threading.Lock()  # guards the three below
        self._thread: threading.Thread | None = None
        self._jobs: set[Job] = set()
        self._closed = False
        self.failed = False
        """Whether a defect has ended it: nothing is computed any more."""
        # Of the thread alone:
        self._ready = InTurn[Ready]()
        self._calls: deque[_Call] = deque()
        self.replies = RunningReplies(
            pair, self.preparation, self.prefill, self.prefix_cache, self._stop
        )

    # -- from any thread -----------------------------------------------------------------------

    def submit(
        self, request: ReplyRequest, interrupt: Interrupt, policy: Policy | None = None
    ) -> ReplyStream:
        """Have a request answered; ``policy`` plans its drafts in place of the pair's own.

        Raises:
            QueueFullError, UsageError: as `deliver`.
        """
        mailbox = Mailbox()
        self.deliver(request, mailbox, interrupt, policy)
        return ReplyStream(mailbox, interrupt)

    def deliver(
        self,
        request: ReplyRequest,
        mailbox: TakesEvents,
        interrupt: Interrupt,
        policy: Policy | None = None,
    ) -> None:
        """Have a request answered as `submit` does, with its events handed to ``mailbox``.

        Raises:
            QueueFullError: as many requests as may wait are waiting.
            UsageError: closed, or it asks for an adapter that is not loaded.
        """
        if not request.drafts:
            policy = Plain("switched off for this reply")
        with self._lock:
            self._jobs = {known for known in self._jobs if not known.over}
            waiting = sum(known.waiting for known in self._jobs)
            if waiting >= self._most_waiting:
                raise QueueFullError(f"{waiting} requests are waiting already; try again later")
            self._start()
            # With the lock: no adapter of the job is freed before the job is known.
            blend = self._pair.target.blend(request.adapters)
            job = Job(request, blend, policy, interrupt, self._wake, mailbox)
            self._jobs.add(job)
        interrupt.watch(job)
        try:
            self._prompts.prepare(job)
        except BaseException:  # without a thread it does not wait either
            with self._lock:
                self._jobs.discard(job)
            raise

    def call(
        self,
        work: Callable[[Sequence[int]], _T],
        *,
        needs_sequence: bool = False,
    ) -> _T:
        """Do something on the models between two rounds, and return what it returns. It gets the
        sequences that no reply uses; where it ``needs_sequence``, it waits for one.

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

    def warm_grammars(self) -> None:
        """Prepare for grammars in a thread of its own: a server would stall its replies later."""
        self._prompts.warm_grammars()

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

    def _wake(self) -> None:
        """A request must end: look at once."""
        self._stop.look()
        self._messages.put(None)

    def _start(self) -> None:
        """Start the thread with the first task.

        Raises:
            UsageError: closed.
        """
        if self._closed:
            raise UsageError("this runtime is closed")
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="localspec models", daemon=True)
            thread.start()  # may fail, and is tried again with the next task
            self._thread = thread
            atexit.register(self.close)  # llama.cpp must not compute while the process ends

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        error: BaseException = UsageError("this runtime is closed")
        phases = self.replies.phases
        try:
            while not self._closed:
                self._take_messages()
                phases.run("stops", self.replies.end_stopped)
                phases.run("calls", self._run_calls)
                phases.run("begins", self._admit)
                self.replies.read()
                self.replies.decode()
                phases.run("adapters", self._free_adapters)
            self.replies.end_all()
        except BaseException as defect:
            log.exception("the scheduler failed")
            error, self.failed = defect, True  # nobody must wait for ever
        with self._lock:
            for job in self._jobs:
                if isinstance(error, UsageError):
                    job.interrupt.set()
                job.fail(error)
            # Now only: the thread of prompts ends jobs of a closed scheduler as interrupted.
            self._closed = True
        self._take_messages(wait=False)
        for call in self._calls:
            call.result.set_exception(error)

    def _take_messages(self, *, wait: bool = True) -> None:
        busy = self.replies.running or self._calls
        wait = wait and not (busy or (self._ready and self.replies.free()))
        while wait or not self._messages.empty():  # this thread alone takes some
            message = self._next_message()
            wait = False
            if isinstance(message, Ready):
                self._ready.add(message)
            elif message is not None:
                self._calls.append(message)

    def _next_message(self) -> _Message:
        try:
            return self._messages.get(timeout=_IDLE_S)
        except queue.Empty:
            self._pair.target.idle()
            return self._messages.get()

    def _run_calls(self) -> None:
        for call in [*self._calls]:
            free = self.replies.free()
            if free or not call.needs_sequence:
                self.replies.deliveries.complete()
                self._calls.remove(call)
                with self._stop.computing_for(()):
                    call.run(free)
                if call.needs_sequence:
                    return  # it computes: other replies have their turn before the next one

    def _admit(self) -> None:
        """Admit requests that wait, as far as there are sequences."""
        self._ready.tidy()
        while self._ready and self.replies.free():
            if (ready := self._ready.next()) is not None:
                self.replies.admit(ready)

    def _free_adapters(self) -> None:
        """Free the adapters that were unloaded, but for those of requests that run or wait."""
        with self._lock:
            self.replies.free_adapters(job.blend for job in self._jobs if not job.over)

    # -- calls ---------------------------------------------------------------------------------

    def tokenized(
        self, request: ReplyRequest, cancelled: Cancelled, *, special: bool, bos: bool
    ) -> Tokenized:
        """See `localspec.generation.tokenizing`; not held up by replies.

        Raises:
            UsageError: closed, or as that.
            Interrupted: ``cancelled`` returned true.
        """
        known, model = self.preparation, self._pair.target_model

        def work() -> Tokenized:
            return tokenized(
                request, model, known.prompts, known.infills, cancelled, special=special, bos=bos
            )

        return self.prepare(request, work)

    def prepare(self, request: ReplyRequest, work: Callable[[], _T]) -> _T:
        """Do something with a request's prompt where prompts are made, and return what it returns.

        Raises:
            UsageError: closed.
            Exception: what ``work`` raises.
        """
        long = self.preparation.takes_long(request)
        return self._prompts.call(request.caller, work, long=long)

    def forget(self) -> None:
        """Empty all sequences; those in use, when their replies end.

        Raises:
            UsageError: closed.
        """
        self.call(lambda _free: self.replies.forget())

    def load_adapter(self, file: AdapterFile, name: str) -> None:
        """Load an adapter for requests to come, which call it by that name.

        Raises:
            UsageError: closed, or as `AdaptsSequences.load_adapter`.
            ModelFileError: as that.
        """
        self._adapt(lambda target: target.load_adapter(file, name))

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter, which is freed once no reply uses it.

        Raises:
            UsageError: closed, or it was loaded with the model.
        """
        self._adapt(lambda target: target.unload_adapter(name))

    def _adapt(self, change: Callable[[AdaptsSequences], None]) -> None:
        def work(_free: Sequence[int]) -> None:
            change(self._pair.target)
            self._free_adapters()

        self.call(work)

    def use_disk(self, store: KvStore) -> None:
        """Use saved states of earlier sessions from now on, and save new ones in `rest`.

        Raises:
            UsageError: closed.
        """
        self.call(lambda _free: self.prefix_cache.use_disk(store))

    def rest(self, cancelled: Cancelled) -> None:
        """Save states to disk while nothing runs and no message waits.

        Raises:
            UsageError: closed.
        """

        def save(free: Sequence[int]) -> None:
            if len(free) == self._pair.target.sequences and not self._ready:
                self.prefix_cache.rest(lambda: cancelled() or not self._messages.empty())

        self.call(save)
