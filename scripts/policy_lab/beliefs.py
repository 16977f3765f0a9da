"""Costs that a controller starts with although the machine has others: swept while other programs
computed, or left by another machine. Real passes must correct them within a few dozen rounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from policy_lab.curves import CURVES, Curve, swept
from policy_lab.evidence import Recorded
from policy_lab.report import Setting

Times = Mapping[int, float]
"""Seconds by width."""

EARLY = 512
"""Tokens of a session within which wrong costs are to be corrected."""
REPLIES = 16


@dataclass(frozen=True)
class Belief:
    """How the costs that are believed differ from those that were swept."""

    name: str
    passes: Callable[[int], float] = lambda _width: 1.0
    """Width -> factor."""
    drafts: float = 1.0
    other: bool = False
    """The curve is that of another machine, of equal speed over one token."""

    def costs(self, sweep: Times, curve: Curve) -> Times:
        """The costs that the controller believes at the start."""
        if self.other:
            name = "epyc" if curve.name in {"server", "rtx3090"} else "server"
            (other,) = (found for found in CURVES if found.name == name)
            table = other.table()
            return {n: table[n] / table[1] * sweep[1] for n in sweep}
        return {n: seconds * self.passes(n) for n, seconds in sweep.items()}


BELIEFS = (
    Belief("as swept"),
    Belief("passes x 50", lambda _n: 50.0),
    Belief("passes and drafts x 50", lambda _n: 50.0, 50.0),
    Belief("passes / 50", lambda _n: 0.02),
    Belief("one x 50", lambda n: 50.0 if n == 1 else 1.0),
    Belief("one x 4", lambda n: 4.0 if n == 1 else 1.0),
    Belief("one / 2", lambda n: 0.5 if n == 1 else 1.0),
    Belief("several x 4", lambda n: 4.0 if n > 1 else 1.0),
    Belief("several / 2", lambda n: 0.5 if n > 1 else 1.0),
    Belief("four x 4", lambda n: 4.0 if n == 4 else 1.0),
    Belief("four / 2", lambda n: 0.5 if n == 4 else 1.0),
    Belief("every second x 4", lambda n: 4.0 if n in {2, 4, 6, 12, 24} else 1.0),
    Belief("another machine", other=True),
    Belief("drafts x 5", drafts=5.0),
    Belief("drafts x 20", drafts=20.0),
    Belief("drafts / 5", drafts=0.2),
)


@dataclass(frozen=True)
class Healed:
    """Ratios to plain decoding in a session that begins with wrong costs."""

    early: float
    """Its first `EARLY` tokens."""
    late: float
    """All tokens after them."""
    worst: float
    """Its slowest reply."""

    def __str__(self) -> str:
        return f"{self.early:6.3f} {self.late:6.3f} {self.worst:6.3f}"


def healed(replies: Sequence[Recorded], setting: Setting, belief: Belief) -> Healed:
    """The first replies of a session with unknown drafters and these costs."""
    order = list(replies)
    random.Random(3).shuffle(order)
    sweep = swept(setting.curve, setting.disturbance, 0)
    believed = belief.costs(sweep, setting.curve)
    policy = setting.controller(0, believed=believed, draft_factor=belief.drafts)
    played = setting.world(policy, 0).play(order[:REPLIES])
    tokens, first = 0, 0
    while first < len(played) - 1 and tokens < EARLY:
        tokens += played[first].at
        first += 1
    early, late = played[:first], played[first:]
    return Healed(
        sum(r.at for r in early) / sum(r.units for r in early),
        sum(r.at for r in late) / sum(r.units for r in late),
        min(r.ratio for r in played),
    )
