"""What the policy lets drafters do in a round, and what both learn from it: frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a drafter may propose now; ``nodes == 0`` is plain decoding."""

    nodes: int
    """Tokens in all."""
    depth: int
    """Tokens one after the other."""
    leaves: int
    """Ends of a tree; 1 is a chain."""

    @classmethod
    def chain(cls, k: int) -> Budget:
        """A chain of at most k tokens."""
        return cls(nodes=k, depth=k, leaves=1 if k else 0)

    def within(self, depth: int, leaves: int) -> Budget:
        """The same budget, no deeper than ``depth`` and no broader than ``leaves``."""
        depth = max(0, min(self.depth, depth))
        return Budget(self.nodes, depth, min(self.leaves, leaves)) if depth else Budget(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Branching:
    """How a drafter of trees spends a budget."""

    leaves: int = 1
    """For each node that there may be at one depth."""
    least: int = 1
    """Nodes at each depth below which it drafts nothing."""
    misses: float = 0.82
    """Of the misses of a chain, those that remain with breadth: measured on the demo pair, three
    nodes at each depth, temperature 0 and 1 (docs/drafters.md)."""


class Pace(Protocol):
    """Decides while a draft grows whether it should grow further."""

    def more(self, confidences: Sequence[float]) -> bool:
        """Whether the token whose confidence comes last is worth including.

        ``confidences`` are the drafter's raw guesses in [0, 1] that each token will stand if those
        before it do. Ask before the token is drawn: for SAMPLED proposals a confidence may depend
        on q and the tokens before, never on the token itself, or the tokens that are included
        would no longer be distributed as q says.
        """
        ...

    def further(self, confidences: Sequence[float]) -> bool:
        """Whether computing one more q is expected to pay; all so far were included."""
        ...


class Eager:
    """As long as the budget allows."""

    def more(self, confidences: Sequence[float]) -> bool:
        """Always."""
        del confidences
        return True

    def further(self, confidences: Sequence[float]) -> bool:
        """Always."""
        del confidences
        return True


ANY = "*"
"""In a step: whichever drafter has something to propose, in the cascade's own order."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one drafter may do in the next round."""

    source: str
    """Its name, or ANY."""
    budget: Budget
    pace: Pace = Eager()  # noqa: RUF009 - it has no state
    look: bool = False
    """Propose nothing, but read what is missing and judge yourself on it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Who may draft in the next round, in order of preference; the first draft is taken."""

    steps: tuple[Step, ...] = ()

    def within(self, depth: int, leaves: int) -> Plan:
        """The same plan, no deeper and no broader than there is room for."""
        return Plan(
            tuple(replace(step, budget=step.budget.within(depth, leaves)) for step in self.steps)
        )


PLAIN = Plan()
"""No drafting in the next round."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a policy may know of a sequence before a round."""

    seq: int
    length: int
    """Tokens known."""
    emitted: int
    """Of them, those of the reply so far."""
    sampling: str
    """The kind of sampling: survival of drafts differs between them."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A drafter's token against the one that was emitted there, whether it was verified or not."""

    seq: int
    source: str
    index: int
    """Place in its draft; those before it stood."""
    confidence: float
    """In [0, 1], as `Pace.more` was told."""
    stood: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the policy learns from one sequence's round."""

    seq: int
    source: str
    """Name of the drafter whose draft it was, empty or not."""
    proposed: int
    verified: int
    accepted: int
    considered: int
    """As in `Draft`."""
    draft_s: float
    """Seconds of drafting alone."""
    round_s: float
    """Seconds of the whole round, drafting included (shared by all sequences in it)."""
