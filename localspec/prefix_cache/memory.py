"""Saved states in memory, bounded in bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from localspec.core.processes import host
from localspec.prefix_cache.states import State, TokenIds, covers, shared

MB = 10**6
"""Bytes of the unit of the setting."""
_SHARE = 4
"""The default limit is a quarter of the memory that is free when a model has been loaded."""
_MOST = 8 << 30
"""Most bytes by default."""
_RESERVE = 16
"""A sixteenth of the machine's memory, or of a container's, stays free, whatever the limit says."""


def default_limit() -> int:
    """Bytes for saved states where the user sets none."""
    return min(_MOST, host.memory().available // _SHARE)


def has_room(n_bytes: int) -> bool:
    """Whether there are that many bytes to spare now."""
    memory = host.memory()
    return memory.available - n_bytes > memory.total // _RESERVE


@dataclass(slots=True)
class _Slot:
    state: State
    seconds: float
    """Reading time that one use spares."""
    uses: int
    priority: float


class MemoryStates:
    """States that are removed by least value, in seconds spared per byte.

    GreedyDual-Size-Frequency (Cherkasova 1998): the priority of a state is uses x seconds / bytes
    on top of the priority of the state that was removed last, so that what is never used ages.
    """

    def __init__(
        self, limit: int, *, cuts_anywhere: bool = True, room: Callable[[int], bool] = has_room
    ) -> None:
        """At most ``limit`` bytes; ``room`` says whether the machine has bytes to spare.

        ``cuts_anywhere`` is as in `SavesState`.
        """
        self.limit = limit
        self._cuts_anywhere = cuts_anywhere
        self._room = room
        self._slots: list[_Slot] = []
        self._age = 0.0

    @property
    def n_bytes(self) -> int:
        """Bytes of all states."""
        return sum(slot.state.n_bytes for slot in self._slots)

    def fits(self, n_bytes: int) -> bool:
        """Whether a state of that size could be added, if others are removed for it."""
        return n_bytes <= self.limit and self._room(n_bytes)

    def of(self, owner: str) -> list[State]:
        """The states of an owner."""
        return [slot.state for slot in self._slots if slot.state.owner == owner]

    def has(self, owner: str, tokens: TokenIds) -> bool:
        """Whether a state of the owner begins with all these tokens."""
        return any(shared(s.tokens, tokens) == len(tokens) for s in self.of(owner))

    def all(self) -> list[State]:
        """The states of all owners."""
        return [slot.state for slot in self._slots]

    def add(self, state: State, seconds: float) -> bool:
        """Add a state that spares ``seconds``, if it is worth more than what it displaces;
        states of its beginnings go.
        """
        kept = [s for s in self._slots if not self._covers(state, s.state)]
        uses = 1 + sum(slot.uses - 1 for slot in self._slots if slot not in kept)
        new = _Slot(state, seconds, uses, 0.0)
        new.priority = self._priority(new)
        free = self.limit - sum(slot.state.n_bytes for slot in kept) - state.n_bytes
        leaving: list[_Slot] = []
        for slot in sorted(kept, key=lambda slot: slot.priority):
            if free >= 0:
                break
            if slot.priority > new.priority:
                self._age = max(self._age, new.priority)
                return False
            leaving.append(slot)
            free += slot.state.n_bytes
        if free < 0:
            return False
        self._age = max([self._age, *(slot.priority for slot in leaving)])
        self._slots = [*(slot for slot in kept if slot not in leaving), new]
        return True

    def used(self, state: State) -> None:
        """Record that a state was restored."""
        for slot in self._slots:
            if slot.state is state:
                slot.uses += 1
                slot.priority = self._priority(slot)

    def remove(self, state: State) -> None:
        """Forget a state."""
        self._slots = [slot for slot in self._slots if slot.state is not state]

    def clear(self) -> None:
        """Forget all."""
        self._slots = []

    def _priority(self, slot: _Slot) -> float:
        return self._age + slot.uses * slot.seconds / max(1, slot.state.n_bytes)

    def _covers(self, longer: State, state: State) -> bool:
        return longer.owner == state.owner and covers(
            longer, state.tokens, state.ends, cuts_anywhere=self._cuts_anywhere
        )
