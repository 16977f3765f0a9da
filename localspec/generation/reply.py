"""From a prompt to a reply: reading, rounds, and what the person should know of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from localspec.core.events import Notice, Reply, ReplyEvent
from localspec.drafters.base import Drafter, Fallible
from localspec.errors import Interrupted
from localspec.generation.prefill import Prefill
from localspec.generation.stream import Generation
from localspec.loading.loader import LoadedPair
from localspec.policy import Policy


class Decoding:
    """Of one loaded pair; it remembers what it has told."""

    def __init__(self, pairing: LoadedPair, reader: Prefill) -> None:
        self._pairing = pairing
        self._reader = reader
        self._told: set[str] = set()
        """Troubles that the person knows of."""

    def reply(
        self, generation: Generation, drafter: Drafter, policy: Policy
    ) -> Generator[ReplyEvent, None, Reply]:
        """The events of a reply, and the whole of it.

        Raises:
            LocalspecError: the caches are not to be trusted then.
        """
        self._pairing.stop.clear()
        try:
            yield from self._reader.read(generation, drafter, policy)
            yield from self._decode(generation, drafter, policy)
        except Interrupted:
            generation.interrupt()
        yield from self._keep()
        capacity = self._pairing.target.capacity
        if generation.finish == "length" and len(generation.tokens) > capacity:
            yield Notice(f"the reply was cut: the context of {capacity} tokens is full")
        return generation.reply(policy)

    def _decode(
        self, generation: Generation, drafter: Drafter, policy: Policy
    ) -> Iterator[ReplyEvent]:
        pairing = self._pairing
        while generation.finish is None:
            if pairing.stop.is_set():  # asked for before each pass: there may be no model any more
                raise Interrupted("the reply was stopped")
            yield from generation.round(pairing.target, drafter, pairing.verifier, policy)
            if isinstance(drafter, Fallible) and drafter.trouble is not None:
                yield from self._tell(drafter.trouble)
            if pairing.watchdog is not None and not pairing.stop.is_set():
                yield from pairing.watchdog.look(generation.last_verify)

    def _keep(self) -> Iterator[Notice]:
        """Keep what was measured for the next session."""
        try:
            self._pairing.control.keep()
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


__all__ = ["Decoding"]
