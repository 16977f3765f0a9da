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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.policy.gain import Expected, charge
from localspec.policy.prices import MARGIN, Prices


@dataclass(frozen=True, slots=True)
class Member:
    """A request that waits for the drafts of all."""

    expected: Expected | None
    """What its own drafts are expected to emit; None if it cannot draft now."""
    bears: float
    """Tokens that it can lose now for the others, see `ReplyBudget.bears`."""


@dataclass(frozen=True, slots=True)
class Together:
    """What all requests of a round do with a drafter, and the figures that decided."""

    depth: int
    """Tokens of each draft; 0 where none drafts."""
    best: int
    """The length that gains most by what is expected, whatever may be lost by it."""
    emitted: float
    """Tokens of a request in a round with such drafts, on average."""
    takes: float
    """Plain passes that this round takes."""
    risk: float
    """What it is charged, see `charge`, in tokens of each request."""
    budget: float
    """Tokens that a request can lose now, on average."""

    @property
    def gain(self) -> float:
        """Tokens that a request gains in that round, on average."""
        return self.emitted - self.takes


def together(
    members: Sequence[Member], requests: int, prices: Prices, budget: float
) -> Together | None:
    """The drafts of all ``requests``, which have ``budget`` tokens each, on average, that they can
    lose; those that are no members cannot draft. None if no length can be drafted.

    In the cautious case the mean of all drafts is charged like a draft of one request. No request
    loses more in a round, by what is expected, than it can bear.
    """
    if not len(prices.costs):
        return None
    accepted, cautious = np.zeros(len(prices.costs)), np.zeros(len(prices.costs))
    bearable = np.ones(len(prices.costs), bool)
    for member in members:
        own = np.zeros(len(prices.costs))
        if member.expected is not None:
            own = member.expected.accepted()
            accepted += own / requests
            cautious += member.expected.accepted_at_worst() / requests
        bearable &= prices.losses - own <= max(0.0, member.bears)
    risk = charge(prices.losses, np.maximum(prices.losses - cautious, 0.0), cautious)
    gains = accepted - (prices.costs - 1)
    best = int(gains.argmax())
    found = np.where(bearable & (risk <= max(0.0, budget)), gains, -np.inf)
    chosen = int(found.argmax())
    return Together(
        depth=chosen + 1 if found[chosen] > MARGIN else 0,
        best=best + 1,
        emitted=1 + float(accepted[best]),
        takes=float(prices.costs[best]),
        risk=float(risk[best]),
        budget=budget,
    )
