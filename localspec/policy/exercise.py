"""A policy that asks for drafts of every kind, one after the other, to verify exactness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localspec.core.drafter_registry import Branching
from localspec.core.plan import NOTHING, PLAIN, Budget, DraftPlan, DraftStep, RequestState
from localspec.policy import Policy

_DEPTHS = (4, 2, 7, 1, 12, 3, 31, 5, 62, 20)
"""Tokens one after the other, round by round."""
_BREADTHS = (3, 1, 2, 4)
"""Nodes at each depth, once for all depths."""
_REST_EVERY = 16
"""One round in this many drafts nothing; every second one of these probes."""


class Exercise(Policy):
    """Plans everything that `localspec.policy.controller.Controller` may plan, whether it pays.

    The order of drafters, the depth and the breadth vary from round to round and do not depend on
    measured times, so the same reply is drafted in the same way on every machine.
    """

    def __init__(
        self, sources: Sequence[str], branching: Mapping[str, Branching], nodes: int
    ) -> None:
        """``sources`` are names of drafters, ``branching`` those of them that draft trees; no draft
        has more than ``nodes`` tokens.
        """
        self._sources = tuple(sources)
        self._branching = dict(branching)
        self._nodes = nodes
        self._round = 0

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """The same plan for every request."""
        at, self._round = self._round, self._round + 1
        return [self._plan(at)] * len(states)

    def _plan(self, at: int) -> DraftPlan:
        if at % _REST_EVERY == _REST_EVERY - 1:
            if at // _REST_EVERY % 2:
                return PLAIN
            return DraftPlan(
                tuple(DraftStep(source, NOTHING, probe=True) for source in self._sources)
            )
        turn, place = divmod(at, len(_DEPTHS))
        first = (at + turn) % len(self._sources)
        order = (*self._sources[first:], *self._sources[:first])
        breadth = _BREADTHS[turn % len(_BREADTHS)]
        return DraftPlan(
            tuple(DraftStep(s, self._budget(s, _DEPTHS[place], breadth)) for s in order)
        )

    def _budget(self, source: str, depth: int, breadth: int) -> Budget:
        branching = self._branching.get(source)
        if branching is None or breadth < branching.least:
            return Budget.chain(min(depth, self._nodes))
        depth = max(1, min(depth, self._nodes // breadth))
        if breadth == 1:
            return Budget.chain(depth)
        return Budget(nodes=breadth * depth, depth=depth, leaves=breadth * branching.leaves)
