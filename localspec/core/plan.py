"""Values between policy and drafters: budgets and plans before a round, outcomes after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from localspec.core.values import Probed

NO_LIMIT = 1 << 30
"""More tokens than any reply has."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a drafter may propose now; ``nodes == 0`` is plain decoding."""

    nodes: int
    """Tokens in all."""
    depth: int
    """Tokens on one path."""
    leaves: int
    """Leaves of a tree; 1 is a chain."""

    @classmethod
    def chain(cls, k: int) -> Budget:
        """A chain of at most k tokens."""
        return cls(nodes=k, depth=k, leaves=1 if k else 0)

    def within(self, depth: int, leaves: int, nodes: int = NO_LIMIT) -> Budget:
        """The same budget, no deeper than ``depth``, no broader than ``leaves``, and of no more
        than ``nodes``.
        """
        depth = max(0, min(self.depth, depth, nodes))
        if not depth:
            return NOTHING
        return Budget(min(self.nodes, nodes), depth, min(self.leaves, leaves))


NOTHING = Budget(0, 0, 0)
"""No token may be drafted."""


class Pace(Protocol):
    """Decides while a draft grows whether it should grow further."""

    def more(self, confidences: Sequence[float]) -> bool:
        """Whether to include the token whose confidence comes last.

        ``confidences`` are the drafter's raw estimates in [0, 1] that each token is accepted,
        given that those before it are. Ask before the token is drawn: for SAMPLED proposals a
        confidence may depend on q and the tokens before, never on the token itself, or the tokens
        that are included would no longer be distributed as q says.
        """

    def further(self, confidences: Sequence[float]) -> bool:
        """Whether computing one more q is expected to pay; all tokens so far were included."""


class Eager:
    """A pace that uses the whole budget."""

    def more(self, confidences: Sequence[float]) -> bool:
        """Always."""
        del confidences
        return True

    def further(self, confidences: Sequence[float]) -> bool:
        """Always."""
        del confidences
        return True


ANY = "*"
"""Source of a step for whichever drafter has something to propose, in order of preference."""


@dataclass(frozen=True, slots=True)
class DraftStep:
    """The part of one drafter in the next round."""

    source: str
    """Its name, or ANY."""
    budget: Budget
    pace: Pace = Eager()  # noqa: RUF009 - it has no state
    probe: bool = False
    """Propose nothing; read the missing tokens and compare own predictions with them. The steps
    after it are carried out all the same."""
    reads: int = NO_LIMIT
    """Most of the missing tokens that a probe reads, from the first one on."""


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """Who may draft in the next round, in order of preference; the first draft is taken."""

    steps: tuple[DraftStep, ...] = ()
    widths: Sequence[int] = ()
    """The quickest number of rows for a pass over at least 1, 2, ... rows; empty: no padding."""

    def rows(self, n: int) -> int:
        """The number of rows to which a pass over n rows is padded."""
        return self.widths[n - 1] if n <= len(self.widths) else n

    def within(self, depth: int, leaves: int, nodes: int = NO_LIMIT) -> DraftPlan:
        """The same plan, with every budget limited to ``depth``, ``leaves`` and ``nodes``."""
        own = [step.budget for step in self.steps]
        if all(b.depth <= depth and b.leaves <= leaves and b.nodes <= nodes for b in own):
            return self
        limited = (step.budget.within(depth, leaves, nodes) for step in self.steps)
        steps = zip(self.steps, limited, strict=True)
        return DraftPlan(tuple(replace(step, budget=b) for step, b in steps), self.widths)


PLAIN = DraftPlan()
"""No drafting in the next round."""


@dataclass(frozen=True, slots=True)
class RequestState:
    """A request as the policy sees it before a round."""

    seq: int
    length: int
    """Tokens of prompt and reply."""
    emitted: int
    """Tokens of the reply so far."""
    sampling: str
    """The kind of sampling; acceptance differs between kinds."""
    other_policy: bool = False
    """Whether another policy plans its drafts: it only shares the pass."""
    batch: int = 1
    """Requests that run together, this one included, as far as is known before its first round."""
    unread: int = 0
    """Tokens that a drafter which computes would have to read before it drafts."""
    left: int = NO_LIMIT
    """Most tokens that are still to come."""
    room: int = NO_LIMIT
    """Most tokens of a draft in the next round, one after the other."""
    drafters: frozenset[str] | None = None
    """Names of those that may draft for it; None: all of them."""

    def may_use(self, drafter: str) -> bool:
        """Whether that drafter may draft for it."""
        return self.drafters is None or drafter in self.drafters


@dataclass(frozen=True, slots=True)
class Evidence:
    """A drafter's token compared with the one emitted there, whether it was verified or not."""

    seq: int
    source: str
    confidence: float
    """In [0, 1], as passed to `Pace.more`."""
    accepted: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counts and times of one sequence's round, for the policy."""

    seq: int
    source: str
    """Name of the drafter whose draft it was, empty or not."""
    proposed: int
    """Its tokens; like the accepted ones, without those that a grammar forced."""
    accepted: int
    considered: int
    """See `Draft.considered`."""
    draft_s: float
    """Seconds of drafting alone."""
    round_s: float
    """Seconds of the whole round, drafting included (shared by all sequences in it)."""
    other_policy: bool = False
    """See `RequestState.other_policy`."""
    forced: int = 0
    """Tokens of the draft that a grammar forced."""
    padding: int = 0
    """See `Scores.padding`."""
    probed: Probed | None = None
    """The probe of the round, beside which another drafter may have drafted; its seconds are among
    those of the round, not among those of drafting."""

    @property
    def drafting_s(self) -> float:
        """Seconds of drafting and of the probe."""
        return self.draft_s + (0.0 if self.probed is None else self.probed.seconds)

    @property
    def width(self) -> int:
        """Rows of the sequence in the target's pass."""
        return 1 + self.proposed + self.forced + self.padding
