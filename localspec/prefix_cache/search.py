"""Looks for the beginning of a prompt in all places where one may be, by measured speeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial

from localspec.core.target import CacheableTarget
from localspec.drafters.base import Drafter
from localspec.prefix_cache.disk import DiskStates
from localspec.prefix_cache.file_format import Saved
from localspec.prefix_cache.memory import MemoryStates
from localspec.prefix_cache.sources import (
    Live,
    Source,
    from_disk,
    from_memory,
    from_sequence,
    in_place,
)
from localspec.prefix_cache.states import NO_CUT, TokenIds, cut_of_state, cut_where, shared

MEMORY_BYTES_PER_SECOND = 1e9
"""Assumed speed of copying a state into the KV cache, until one was copied."""
DISK_BYTES_PER_SECOND = 300e6
"""Assumed speed of restoring a state from disk, until one was restored."""
_WEIGHT = 0.75
"""Weight of the earlier measurements when a new one comes."""


class Rate:
    """Units per second: sums of units and seconds in which older measurements weigh less."""

    def __init__(self, assumed: float = 0.0) -> None:
        """``assumed`` is the rate until the first measurement; 0: unknown."""
        self._assumed = assumed
        self._units, self._seconds = 0.0, 0.0

    def add(self, units: float, seconds: float) -> None:
        """Record a measurement."""
        self._units = _WEIGHT * self._units + units
        self._seconds = _WEIGHT * self._seconds + max(seconds, 1e-9)

    @property
    def per_second(self) -> float:
        """The rate; 0 if it is unknown."""
        return self._units / self._seconds if self._seconds > 0 else self._assumed

    def seconds(self, units: float) -> float:
        """Seconds for that many units; 0 if the rate is unknown."""
        rate = self.per_second
        return units / rate if rate > 0 else 0.0


class Moving(Rate):
    """Bytes per second of moving states."""


class Rates:
    """Measured speeds, by which the prefix cache decides what is worth keeping and restoring."""

    def __init__(self) -> None:
        self.reading = Rate()
        """Tokens of prompts."""
        self.memory = Moving(MEMORY_BYTES_PER_SECOND)
        """Bytes between the KV cache and memory."""
        self.disk = Moving(DISK_BYTES_PER_SECOND)
        """Bytes from disk into the KV cache."""


class Search:
    """The states that sequences, memory and disk have for a prompt, and which is best."""

    def __init__(
        self,
        target: CacheableTarget,
        drafter: Drafter,
        live: Mapping[int, Live],
        memory: MemoryStates,
        rates: Rates,
    ) -> None:
        """``live`` is what the target's sequences hold."""
        self._target = target
        self._drafter = drafter
        self._live = live
        self._memory = memory
        self._rates = rates
        self.disk: DiskStates | None = None
        """None: not looked through."""

    def best(
        self, seq: int, live: Live, prompt: TokenIds, owner: str, most: float = math.inf
    ) -> Source:
        """The source that spares most for a prompt, of those that are moved within ``most``
        seconds; the sequence holds what ``live`` says.
        """
        sources = self._sources(seq, live, prompt, owner)
        return max((one for one in sources if self._moving(one) <= most), key=self.gain)

    def _moving(self, source: Source) -> float:
        """Seconds that restoring takes the thread of the models, by the measured speeds; a file
        that was read before is moved as what is in memory.
        """
        if source.place == "sequence":
            return 0.0
        saved, disk = source.saved, self.disk
        at_hand = disk is not None and isinstance(saved, Saved) and disk.at_hand(saved)
        rates = self._rates
        moved = rates.disk if source.place == "disk" and not at_hand else rates.memory
        return moved.seconds(source.n_bytes)

    def file(self, disk: DiskStates, prompt: TokenIds, owner: str) -> Saved | None:
        """The file that is going to be the best source, if one is; callable in any thread."""
        files = [(from_disk(self._target, disk, saved, prompt), saved) for saved in disk.of(owner)]
        best, saved = max(files, key=lambda file: self.gain(file[0]), default=(None, None))
        if best is None or self.gain(best)[0] <= 0:
            return None
        mine = [live for live in [*self._live.values()] if live.owner == owner]
        live = [shared(live.tokens, prompt) for live in mine]
        memory = [
            cut_of_state(self._target, state.tokens, state.checkpoints, prompt).length
            for state in self._memory.of(owner)
        ]
        return saved if best.cut.length > max([*live, *memory], default=0) else None

    def longest(self, seq: int, prompt: TokenIds, owner: str) -> int:
        """Tokens of the prompt that anything but this sequence begins with."""
        known = [
            *(o.tokens for at, o in self._live.items() if at != seq and o.owner == owner),
            *(state.tokens for state in self._memory.of(owner)),
            *(saved.tokens for saved in (self.disk.of(owner) if self.disk else ())),
        ]
        return max((shared(tokens, prompt) for tokens in known), default=0)

    def in_place(self, seq: int, live: Live, prompt: TokenIds, owner: str) -> Source:
        """The sequence itself."""
        if live.owner != owner:
            return in_place(NO_CUT)
        can_cut = partial(self._target.can_truncate, seq)
        cut = cut_where(can_cut, live.tokens, live.checkpoints, prompt)
        return in_place(cut, live.checkpoints)

    def _sources(self, seq: int, live: Live, prompt: TokenIds, owner: str) -> Iterator[Source]:
        target = self._target
        yield self.in_place(seq, live, prompt, owner)
        for other, there in self._live.items():
            usable = there.owner == owner and (target.cuts_anywhere or not there.running)
            if other != seq and usable and not target.picture_begun(other):
                yield from_sequence(target, self._drafter, other, there, prompt)
        for state in self._memory.of(owner):
            yield from_memory(target, state, prompt)
        if self.disk is not None:
            for saved in self.disk.of(owner):
                yield from_disk(target, self.disk, saved, prompt)

    def gain(self, source: Source) -> tuple[float, int]:
        """Seconds that a source spares, by the measured speeds; then tokens."""
        length = source.cut.length
        rate = self._rates.reading.per_second or source.rate
        if source.place == "sequence":
            return (length / rate if rate else 0.0), length
        if not rate or not length:
            return -1.0, 0
        return length / rate - self._moving(source), length
