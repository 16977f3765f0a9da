"""From a prompt to a reply: prefill, decode rounds, and notices to the user."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Protocol

from localspec.core.events import Notice, Reply, ReplyEvent
from localspec.core.interrupt import Interrupt, StopSignal
from localspec.core.target import Target
from localspec.drafters.base import Drafter
from localspec.errors import Interrupted
from localspec.generation.prefill import Prefill
from localspec.generation.stream import Generation
from localspec.policy import Policy


class SavesCosts(Protocol):
    """Saves the measured costs of a pair for the next session."""

    def save(self) -> None:
        """Write them to disk.

        Raises:
            OSError: they cannot be written.
        """
        ...


class WatchesPasses(Protocol):
    """Intervenes where passes take much longer than usual."""

    def look(self, last: tuple[int, float]) -> Iterator[Notice]:
        """Record a pass of (width, seconds)."""
        ...


class ReplyLoop:
    """Runs requests of one loaded pair to their end; each problem is reported once."""

    def __init__(
        self,
        target: Target,
        prefill: Prefill,
        stop: StopSignal,
        costs: SavesCosts,
        watchdog: WatchesPasses | None,
    ) -> None:
        self._target = target
        self._prefill = prefill
        self._stop = stop
        self._costs = costs
        self._watchdog = watchdog
        self._reported: set[str] = set()

    def reply(
        self, generation: Generation, drafter: Drafter, policy: Policy, interrupt: Interrupt
    ) -> Generator[ReplyEvent, None, Reply]:
        """The events of a reply; returns the whole reply.

        Raises:
            LocalspecError: the caches are not to be trusted afterwards.
        """
        try:
            with interrupt.stopping(self._stop):
                yield from self._prefill.read(generation, drafter, policy)
                yield from self._decode(generation, drafter, policy)
        except Interrupted:
            generation.interrupt()
        yield from self._save_costs()
        capacity = self._target.capacity
        if generation.finish == "length" and len(generation.tokens) > capacity:
            yield Notice(f"the reply was cut: the context of {capacity} tokens is full")
        return generation.reply(policy)

    def _decode(
        self, generation: Generation, drafter: Drafter, policy: Policy
    ) -> Iterator[ReplyEvent]:
        while generation.finish is None:
            if self._stop.is_set():  # the runtime may have been closed and the model freed
                raise Interrupted("the reply was stopped")
            yield from generation.round(self._target, drafter, policy)
            if drafter.problem is not None:
                yield from self._report(drafter.problem)
            if self._watchdog is not None and not self._stop.is_set():
                yield from self._watchdog.look(generation.last_verify)

    def _save_costs(self) -> Iterator[Notice]:
        """Save the measured costs for the next session."""
        try:
            self._costs.save()
        except OSError as error:
            yield from self._report(
                f"measured speeds cannot be kept for the next start: {error.strerror}; free some "
                "space, or set LOCALSPEC_HOME to a writable folder",
            )

    def _report(self, problem: str) -> Iterator[Notice]:
        """A notice of the problem, the first time that it occurs."""
        if problem not in self._reported:
            self._reported.add(problem)
            yield Notice(problem)


__all__ = ["ReplyLoop", "SavesCosts", "WatchesPasses"]
