"""How far the drafts of several requests go that run at once: as far for all, or none drafts.

All requests of a pass have the width of the widest, and those that draft share the passes of the
drafter: where some draft, one more costs next to nothing, and one alone would delay all. So a
drafter that computes is asked by all or by none, for as many tokens as gain the most for all of
them, in plain tokens of each:

    mean of A(k)  -  (t(n (1 + k)) / t(n) - 1 + k c)

where A(k) = s * (1 + m + ... + m^(k-1)) tokens of a request's draft are expected to be accepted,
and c is a pass of the drafter over a row of each. (Liu et al. 2024, "Optimizing Speculative
Decoding for Serving Large Language Models Using Goodput", choose lengths for a batch likewise.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localspec.core.plan import NO_LIMIT
from localspec.policy.gain import Expected, charge
from localspec.policy.prices import MARGIN, Prices, zero_to


@dataclass(frozen=True, slots=True)
class Member:
    """A request that waits for the drafts of all."""

    expected: Expected | None
    """What its own drafts are expected to emit; None if it cannot draft now."""
    bears: float
    """Tokens that it can lose now for the others, see `ReplyBudget.bears`."""
    room: int = NO_LIMIT
    """Most tokens of its draft, and that it can still emit."""


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all requests of a round do with a drafter, and the figures that decided."""

    depth: int
    """Tokens of each draft; 0 where none drafts."""
    gained: float
    """Tokens that a request gains by that, on average."""
    best: int
    """The length that gains most by what is expected, whatever may be lost by it; 0 where none has
    room for a draft."""
    best_emits: float
    """Tokens of a request in a round with drafts of the best length, on average."""
    best_takes: float
    """Plain passes that this round takes."""
    best_risk: float
    """What it is charged, see `charge`, in tokens of each request."""
    budget: float
    """Tokens that a request can lose now, on average."""
    tried: bool = False
    """Whether all draft only to measure what passes cost."""
    gives_way: bool = False
    """Whether another drafter drafts for all instead, which gains more."""

    @property
    def best_gain(self) -> float:
        """Tokens that a request gains in a round with drafts of the best length, on average."""
        return self.best_emits - self.best_takes


def agree(members: Sequence[Member], prices: Prices, budget: float) -> Agreed:
    """The drafts of all requests, which can lose ``budget`` tokens each, on average.

    In the cautious case the mean of all drafts is charged like a draft of one request. No request
    loses more in a round, by what is expected, than it can bear.
    """
    lengths = min(len(prices.costs), max(member.room for member in members))
    if lengths <= 0:
        return Agreed(0, 0.0, best=0, best_emits=1.0, best_takes=1.0, best_risk=0.0, budget=budget)
    costs, losses = prices.costs[:lengths], prices.losses[:lengths]
    accepted, cautious = np.zeros((len(members), lengths)), np.zeros(lengths)
    for own, member in zip(accepted, members, strict=True):
        if member.expected is not None:
            within = np.minimum(zero_to(lengths)[1:], max(0, min(member.room, lengths)))
            usual, worst = (np.append(0.0, each) for each in member.expected.accepted())
            own[:] = usual[within]
            cautious += worst[within] / len(members)
    bears = np.maximum([[member.bears] for member in members], 0.0)
    bearable = (losses - accepted <= bears).all(axis=0)
    mean = accepted.mean(axis=0)
    risk = charge(losses, np.maximum(losses - cautious, 0.0), cautious)
    gains = mean - (costs - 1)
    best = int(gains.argmax())
    found = np.where(bearable & (risk <= max(0.0, budget)), gains, -np.inf)
    chosen = int(found.argmax())
    drafts = bool(found[chosen] > MARGIN)
    return Agreed(
        depth=chosen + 1 if drafts else 0,
        gained=float(found[chosen]) if drafts else 0.0,
        best=best + 1,
        best_emits=1 + float(mean[best]),
        best_takes=float(costs[best]),
        best_risk=float(risk[best]),
        budget=budget,
    )


def let_one_draft(by_source: Mapping[str, Agreed]) -> dict[str, Agreed]:
    """All of them, where only the drafter drafts that gains the most, before any that is only
    tried; the others give way.
    """
    drafting = [source for source, agreed in by_source.items() if agreed.depth]
    by_gain = sorted(drafting, key=lambda s: (by_source[s].tried, -by_source[s].gained))
    chosen = next(iter(by_gain), "")
    return {
        source: replace(agreed, depth=0, gives_way=True)
        if source in drafting and source != chosen
        else agreed
        for source, agreed in by_source.items()
    }
