"""From a prompt to a reply: prefill, decode rounds, and notices to the user."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Protocol

from localspec.core.events import Notice, Reply, ReplyEvent
from localspec.core.interrupt import Interrupt, StopSignal
from localspec.core.target import Target
from localspec.drafters.base import Drafter, Fallible
from localspec.errors import Interrupted
from localspec.generation.prefill import Prefill
from localspec.generation.stream import Generation
from localspec.policy import Policy
from localspec.verifiers import Verifier


class SavesCosts(Protocol):
    """What keeps the measured costs of a pair for the next session."""

    def save(self) -> None:
        """Write them to disk.

        Raises:
            OSError: they cannot be written.
        """
        ...


class WatchesPasses(Protocol):
    """What steps in where passes take much longer than usual."""

    def look(self, last: tuple[int, float]) -> Iterator[Notice]:
        """Take note of a pass of (width, seconds)."""
        ...


class ReplyLoop:
    """Runs requests of one loaded pair to their end; each kind of trouble is told once."""

    def __init__(
        self,
        target: Target,
        verifier: Verifier,
        prefill: Prefill,
        stop: StopSignal,
        costs: SavesCosts,
        watchdog: WatchesPasses | None,
    ) -> None:
        self._target = target
        self._verifier = verifier
        self._reader = prefill
        self._stop = stop
        self._costs = costs
        self._watchdog = watchdog
        self._told: set[str] = set()
        """Troubles that the person knows of."""

    def reply(
        self, generation: Generation, drafter: Drafter, policy: Policy, interrupt: Interrupt
    ) -> Generator[ReplyEvent, None, Reply]:
        """The events of a reply, and the whole of it.

        Raises:
            LocalspecError: the caches are not to be trusted then.
        """
        try:
            with interrupt.stopping(self._stop):
                yield from self._reader.read(generation, drafter, policy)
                yield from self._decode(generation, drafter, policy)
        except Interrupted:
            generation.interrupt()
        yield from self._keep()
        capacity = self._target.capacity
        if generation.finish == "length" and len(generation.tokens) > capacity:
            yield Notice(f"the reply was cut: the context of {capacity} tokens is full")
        return generation.reply(policy)

    def _decode(
        self, generation: Generation, drafter: Drafter, policy: Policy
    ) -> Iterator[ReplyEvent]:
        while generation.finish is None:
            if self._stop.is_set():  # asked for before each pass: there may be no model any more
                raise Interrupted("the reply was stopped")
            yield from generation.round(self._target, drafter, self._verifier, policy)
            if isinstance(drafter, Fallible) and drafter.problem is not None:
                yield from self._tell(drafter.problem)
            if self._watchdog is not None and not self._stop.is_set():
                yield from self._watchdog.probe(generation.last_verify)

    def _keep(self) -> Iterator[Notice]:
        """Keep what was measured for the next session."""
        try:
            self._costs.save()
        except OSError as error:
            yield from self._tell(
                f"measured speeds cannot be kept for the next start: {error.strerror}; free some "
                "space, or set LOCALSPEC_HOME to a writable folder",
            )

    def _tell(self, trouble: str) -> Iterator[Notice]:
        """Once."""
        if trouble not in self._told:
            self._told.add(trouble)
            yield Notice(trouble)


__all__ = ["ReplyLoop", "SavesCosts", "WatchesPasses"]
