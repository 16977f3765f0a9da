"""The replies of one loaded pair that have a sequence: prompts in parts, rounds for all, ends.

Prompts are read in passes of their own: in one pass with a round they would make llama.cpp cut it
into parts. While replies run, a part takes no longer than `PAUSE`, or than two rounds.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from localspec.core.adapter_list import Blend
from localspec.core.errors import Interrupted
from localspec.core.events import Finished, Notice, ReplyEvent
from localspec.core.processes.activity import doing
from localspec.decode.round import RoundResult, decode_round
from localspec.drafters.base import Off
from localspec.generation.delivery import Deliveries, Delivery
from localspec.generation.generation import Generation
from localspec.generation.grammars import incomplete
from localspec.generation.prefill import Prefill
from localspec.generation.preparation import Preparation
from localspec.generation.prompt_thread import Ready
from localspec.generation.runnable import RunnablePair
from localspec.generation.turns import PassStop, Phases, Turns
from localspec.prefix_cache.cache import PrefixCache

log = logging.getLogger("localspec.replies")

PAUSE = 0.15
"""Seconds that a part of a prompt may take while other replies run."""
_ROUNDS = 2.0
"""Rounds that a part may take where they last longer than `PAUSE`: prompts then get two thirds of
the time."""

LOOK = 8
"""Rounds between two questions to the policy whether drafters should read what they missed."""


class RunningReplies:
    """Belongs to the thread that owns the models; nothing here may be called from another one."""

    def __init__(
        self,
        pair: RunnablePair,
        preparation: Preparation,
        prefill: Prefill,
        prefix_cache: PrefixCache,
        stop: PassStop,
    ) -> None:
        """``stop`` aborts passes whose requests were all interrupted."""
        self._pair = pair
        self._preparation = preparation
        self._prefill, self._sequences = prefill, prefill.sequences
        self._prefix_cache = prefix_cache
        self._stop = stop
        self.running: list[Generation] = []
        """In the order in which they began."""
        self._turn = itertools.count()
        self._turns = Turns()
        self._rounds = 0
        self._round_seconds = 0.0
        """Duration of the last round."""
        self._reported: set[str] = set()
        self.deliveries = Deliveries(pair.target)
        self.phases = Phases()
        """Longest time of each phase outside passes, for the fault search."""

    def free(self) -> list[int]:
        """Sequences that no reply uses."""
        used = {running.seq for running in self.running}
        return [seq for seq in range(self._pair.target.sequences) if seq not in used]

    def admit(self, ready: Ready) -> None:
        """Begin a reply in the free sequence that suits its prompt best; there must be one."""
        job, prepared = ready.job, ready.prepared
        if not job.begin():  # stopped while it waited
            return
        self.deliveries.complete()
        doing(f"answering with {self._pair.target_model.path}")
        try:
            owner = prepared.cache_owner
            seq = self._prefix_cache.choose(prepared.reusable, owner, self.free())
            drafter = self._pair.drafter if job.request.drafts else Off()
            policy = job.policy or self._pair.control.policy_for(prepared.blend)
            self.running.append(Generation(job, prepared, seq, drafter, policy))
        except Exception as error:  # noqa: BLE001 - raised to whoever reads the reply
            job.fail(error)
            return
        self._guarded(self.running[-1], self._begin, aborts=False)

    def end_stopped(self) -> None:
        """End the replies that were told to, and those whose events could not be handed over."""
        for running in [*self.running]:
            if running.defect is not None:
                self._fail(running, running.defect)
            elif running.stopped:
                self.finish(running)

    def _begin(self, running: Generation) -> None:
        running.job.mailbox.put(running.prepared.opening)
        waited_for = self._others_wait(running)
        running.job.mailbox.put(self._prefill.begin(running, waited_for=waited_for))

    def read(self) -> None:
        """Read a part of one prompt: in turns of the one that waits longest, and of the one that
        has the least to read.
        """
        reading = [running for running in self.running if running.reading]
        if reading:
            self.deliveries.complete()
            shortest = min(reading, key=self._prefill.unread)
            self._guarded((reading[0], shortest)[next(self._turn) % 2], self._read_part)

    def _others_wait(self, running: Generation) -> bool:
        """Whether replies that are being written wait for what is done for this one."""
        return any(not other.reading for other in self.running if other is not running)

    def _read_part(self, running: Generation) -> None:
        waited_for = self._others_wait(running)
        sizes = self._prefill.sizes
        pause = max(PAUSE, _ROUNDS * self._round_seconds)
        most = sizes.within(pause) if waited_for else sizes.alone()
        left = running.reading_left()
        if left is not None:
            if left <= 0:
                self._give_up(running)
                return
            most = min(most, sizes.within(left))
        batch = len(self.running)
        events = self._prefill.read(running, most, batch, pause if waited_for else None)
        running.reading = self._prefill.unread(running) > 0
        if running.finish is None:
            running.job.mailbox.put(events)
        else:
            self.finish(running, events=events)

    def _give_up(self, running: Generation) -> None:
        """End a reply whose prompt takes longer to read than its request allows."""
        running.give_up()
        unread = self._prefill.unread(running)
        said = f"the time for the prompt was over with {unread} tokens unread; the rest is kept"
        self.finish(running, events=[Notice(said)])

    def _guarded(
        self, running: Generation, step: Callable[[Generation], None], *, aborts: bool = True
    ) -> None:
        """Call ``step`` for one reply; if that fails, this reply alone ends. An interrupt aborts
        its passes unless they are for what the sequence held before.
        """
        try:
            with self._stop.computing_for([running.job.interrupt] if aborts else []):
                step(running)
        except Interrupted:
            self.finish(running)
        except Exception as error:  # noqa: BLE001 - raised to whoever reads the reply
            self._fail(running, error)

    def decode(self) -> None:
        """One round for all replies whose prompts are read, and whose adapters have their turn."""
        pair = self._pair
        self._catch_up()
        decoding = self._turns.take([running for running in self.running if not running.reading])
        if not decoding:
            return
        policy = pair.control.policy_for(decoding[0].prepared.blend)
        decoding.sort(key=lambda running: running.seq)  # llama.cpp splits passes of other orders
        requests = [running.request for running in decoding]
        try:
            with self._stop.computing_for([running.job.interrupt for running in decoding]):
                results = decode_round(requests, pair.target, pair.drafter, policy)
        except Interrupted:
            for running in decoding:
                self.finish(running)
            return
        except Exception as error:  # noqa: BLE001 - raised to all who read their replies
            for running in decoding:
                self._fail(running, error)
            self._sequences.check(self.free())
            for running in [*self.running]:  # their prompts are read
                if not self._sequences.whole(running.seq):
                    self._fail(running, error)
            return
        self.phases.run("rounds' ends", lambda: self._deliver(decoding, results))
        for running in [one for one in self.running if one.drafts_postponed]:
            if not running.reading:
                self.deliveries.complete()
                batch = len(self.running)
                self._guarded(running, partial(self._prefill.resume_drafts, batch=batch))

    def _catch_up(self) -> None:
        """Now and then, let drafters read a part of what they have missed."""
        self._rounds += 1
        if self._rounds % LOOK == 0:
            for running in [*self.running]:
                if not running.reading and not running.drafts_postponed:
                    batch = sum(not other.reading for other in self.running)
                    self._guarded(running, partial(self._prefill.catch_up, batch=batch))

    def _deliver(self, decoding: Sequence[Generation], results: Sequence[RoundResult]) -> None:
        """Hand over the events of a round; end the replies that are complete or have failed."""
        ended, alone = time.perf_counter(), len(decoding) == 1
        by_seq = {result.request.seq: result for result in results}
        if any(running.reads_along for running in decoding):
            notices = self._notices([])  # this round's times are those of a prompt
        else:
            self._round_seconds = max((result.figures.seconds for result in results), default=0.0)
            notices = self._notices(results)
        going_on: list[Delivery] = []
        for running in decoding:
            result, request = by_seq.get(running.seq), running.request
            if result is None:
                failed = AssertionError("a request without result or error")
                self._fail(running, request.error or failed)
                continue
            delivery = Delivery(running, result, notices, ended, alone)
            if request.error is not None:  # after these tokens
                self.deliveries.put_off(delivery)
                self._fail(running, request.error)
            elif request.finish is None:
                going_on.append(delivery)
            else:
                self.finish(running, delivery)
        self.deliveries.after_round(going_on)

    def _notices(self, results: Sequence[RoundResult]) -> list[Notice]:
        """Notices for users after a round; each problem is reported once."""
        found: list[Notice] = []
        problem = self._pair.drafter.problem
        if problem is not None:
            found += self._report(problem)
        if self._pair.watchdog is not None and results:
            width = sum(1 + len(result.draft) for result in results)
            found += self._pair.watchdog.look((width, results[0].figures.verify_seconds))
        return found

    def _report(self, problem: str) -> list[Notice]:
        """A notice of the problem, the first time that it occurs."""
        if problem in self._reported:
            return []
        self._reported.add(problem)
        return [Notice(problem)]

    # -- ends ----------------------------------------------------------------------------------

    def finish(
        self, running: Generation, last: Delivery | None = None, events: Sequence[ReplyEvent] = ()
    ) -> None:
        """End a reply after its ``last`` round, or after ``events``; as interrupted, where it is
        not complete. If something fails, it ends with that, and no other reply does.
        """
        self.deliveries.complete()
        if running.defect is not None:
            self._fail(running, running.defect)
            return
        try:
            self._finish(running, events if last is None else last.events())
        except Exception as error:  # noqa: BLE001 - raised to whoever reads the reply
            self._fail(running, error)

    def _finish(self, running: Generation, events: Sequence[ReplyEvent]) -> None:
        self.running.remove(running)
        if running.finish is None:
            running.interrupt()
        self._sequences.finish(running)
        last = [*events, *self._save_costs()]
        capacity = self._pair.target.capacity
        if running.finish == "length" and len(running.tokens) > capacity:
            last.append(Notice(f"the reply was cut: the context of {capacity} tokens is full"))
        reply = running.reply()
        if not reply.valid:
            limited = running.prepared.ending.limited
            last.append(incomplete(reply.finish_reason, reply.stop_text, limited=limited))
        conversation = self._preparation.remember(running.prepared, reply)
        if running.forgotten:
            self._sequences.forget(running.seq)
        elif conversation is not None:
            self._prefix_cache.describe(running.seq, conversation)
        running.job.interrupt.watch(None)
        running.job.end([*last, Finished(reply)])
        self._remember(running)

    def _remember(self, running: Generation) -> None:
        """Let later replies be drafted from one that has ended, where its request allows it."""
        request = running.request
        owner = request.drafting.recalls
        if owner is not None and request.emitted and not running.forgotten:
            try:
                self._pair.drafter.remember(owner, request.tokens)
            except MemoryError:
                log.warning("memory is short: earlier requests are not drafted from any more")
                self._pair.drafter.forget_requests()

    def _fail(self, running: Generation, error: Exception) -> None:
        """End a reply with an error; its sequence is not trusted any more."""
        self.deliveries.complete()
        if running in self.running:
            self.running.remove(running)
        self._sequences.reset(running.seq)
        running.job.interrupt.watch(None)
        running.job.fail(error)

    def _save_costs(self) -> list[Notice]:
        """Save the measured costs for the next session, once nothing runs."""
        if self.running:
            return []
        try:
            self._pair.control.save()
        except OSError as error:
            return self._report(
                f"measured speeds cannot be kept for the next start: {error.strerror}; free some "
                "space, or set LOCALSPEC_HOME to a writable folder",
            )
        return []

    # -- adapters ------------------------------------------------------------------------------

    def free_adapters(self, used: Iterable[Blend]) -> None:
        """Free the adapters that were unloaded, but for those that are ``used``; sequences at rest
        that one was used for are emptied.
        """
        for seq in self._pair.target.free_adapters(used):
            self._sequences.forget(seq)

    # -- all of them ---------------------------------------------------------------------------

    def end_all(self) -> None:
        """End all as interrupted."""
        for running in [*self.running]:
            self.finish(running)

    def forget(self) -> None:
        """Empty all sequences; those in use, when their replies end. Nothing is drafted from
        earlier requests any more.
        """
        for seq in self.free():
            self._sequences.forget(seq)
        self._prefix_cache.clear()
        self._pair.drafter.forget_requests()
        self._preparation.forget()
        for running in self.running:
            running.forgotten = True
