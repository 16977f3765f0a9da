"""Who is next where several callers wait: the one that was served longest ago, so that nobody waits
for all that another one has sent.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Container, Iterator
from typing import Generic, Protocol, TypeVar

_CALLERS = 4096
"""Callers whose last turn is known; those of the others were before."""


class Waits(Protocol):
    """Something that waits for its turn."""

    @property
    def caller(self) -> str:
        """Whose it is."""
        ...

    @property
    def over(self) -> bool:
        """Whether nobody wants it any more."""
        ...


_W = TypeVar("_W", bound=Waits)


class InTurn(Generic[_W]):
    """All that waits, of several callers. For one thread at a time."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[_W]] = {}
        """What waits of each caller, none of them empty."""
        self._served, self._last = 0, dict[str, int]()
        """How many had their turn, and the number of each caller's last one, in their order."""

    def __len__(self) -> int:
        """How many wait, with those that are over but were not passed yet."""
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[_W]:
        """All that waits."""
        return itertools.chain.from_iterable(self._lines.values())

    def add(self, one: _W, *, first: bool = False) -> None:
        """Let something wait, behind all of its caller, or ``first`` of it."""
        line = self._lines.setdefault(one.caller, deque())
        if first:
            line.appendleft(one)
        else:
            line.append(one)

    def tidy(self) -> None:
        """Forget what is over."""
        left = {
            caller: deque(one for one in line if not one.over)
            for caller, line in self._lines.items()
        }
        self._lines = {caller: line for caller, line in left.items() if line}

    def next(self, but: Container[str] = ()) -> _W | None:
        """Take the oldest of the caller whose last turn was longest ago, of callers that are not
        in ``but``; None: there is none.
        """
        while may := [caller for caller in self._lines if caller not in but]:
            caller = min(may, key=self._last_turn)
            line = self._lines[caller]
            one = line.popleft()
            if not line:
                del self._lines[caller]
            if not one.over:
                self._note(caller)
                return one
        return None

    def _last_turn(self, caller: str) -> int:
        return self._last.get(caller, 0)

    def _note(self, caller: str) -> None:
        self._served += 1
        self._last.pop(caller, None)
        self._last[caller] = self._served
        if len(self._last) > _CALLERS:
            del self._last[next(iter(self._last))]


class Places(Generic[_W]):
    """Places, which callers have in turn. For one thread at a time."""

    def __init__(self, most: int, spare: int = 0) -> None:
        """``spare`` more are for callers that have none: one who takes all that there are does not
        keep the next one waiting.
        """
        self._most, self._spare = most, spare
        self._waiting = InTurn[_W]()
        self._taken = Counter[str]()

    def __len__(self) -> int:
        """How many wait or have a place."""
        return len(self._waiting) + self._taken.total()

    @property
    def waiting(self) -> int:
        """How many wait, as those of `InTurn`."""
        return len(self._waiting)

    def add(self, one: _W, *, first: bool = False) -> None:
        """Let something wait for a place, as `InTurn.add`."""
        self._waiting.add(one, first=first)

    def tidy(self) -> None:
        """Forget what waits and is over."""
        self._waiting.tidy()

    def next(self) -> _W | None:
        """Give what is next a place; None: there is nothing that may have one."""
        taken = self._taken.total()
        if taken >= self._most + self._spare:
            return None
        one = self._waiting.next(self._taken if taken >= self._most else ())
        if one is not None:
            self._taken[one.caller] += 1
        return one

    def leave(self, caller: str) -> None:
        """A caller gives a place back."""
        self._taken[caller] -= 1
        self._taken = +self._taken  # without those that have none
