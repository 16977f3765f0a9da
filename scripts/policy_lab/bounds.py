"""Bounds for a policy: every fixed length, and one that knows what will be accepted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policy_lab.curves import Curve, relative
from policy_lab.evidence import LONGEST, Recorded
from policy_lab.world import ASKING

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 11, 15, 31, 62)
"""Fixed lengths that are tried."""


def clairvoyant(reply: Recorded, sources: Sequence[str], curve: Curve) -> float:
    """The least time of the reply in plain tokens: each round drafts with the drafter and as far as
    is best given what will be accepted. Asking costs nothing but the drafted tokens.
    """
    n, cost = reply.length, relative(curve.table())[: LONGEST + 2]
    lengths = np.arange(LONGEST + 1)
    prices = {name: cost[1:] + lengths * ASKING[name].token for name in sources}
    # A longer draft of which no more is accepted may be cheaper: curves have steps.
    cheapest = {
        name: np.minimum.accumulate(price[::-1])[::-1].tolist() for name, price in prices.items()
    }
    rest = [0.0] * (n + 1)
    for at in range(n - 1, -1, -1):
        best = 1.0 + rest[at + 1]
        for name in sources:
            chain, price = reply.sources[name].at(at), cheapest[name]
            for k in range(1, min(chain.accepted, n - at - 1) + 1):
                found = price[k] + rest[at + 1 + k]
                best = min(best, found)
        rest[at] = best
    return rest[0]


def fixed(reply: Recorded, sources: Sequence[str], curve: Curve, length: int) -> float:
    """The time of the reply in plain tokens with drafts of one length."""
    cost = relative(curve.table())
    at, units = 0, 0.0
    while at < reply.length:
        units_of_drafts, tokens, accepted = 0.0, 0, 0
        room = reply.length - at - 1
        for name in sources:
            chain = reply.sources[name].at(at)
            tokens = min(length, len(chain.confidences), room)
            accepted = min(chain.accepted, tokens)
            units_of_drafts += tokens * ASKING[name].token
            if tokens:
                break
        units += float(cost[1 + tokens]) + units_of_drafts
        at += 1 + accepted
    return units


def best_fixed(replies: Sequence[Recorded], sources: Sequence[str], curve: Curve) -> float:
    """The ratio to plain decoding of the length that is best for all these replies together."""
    total = sum(reply.length for reply in replies)
    times = [sum(fixed(reply, sources, curve, length) for reply in replies) for length in LENGTHS]
    return total / min(total, *times)
