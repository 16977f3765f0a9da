"""Bounds for a policy: every fixed length, one that knows what will be accepted, and one
that knows how often what looks like it is accepted in this very reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from localspec.policy.acceptance import BINS, COMPUTES, AcceptanceEstimate, bin_of
from localspec.policy.decide import GainPace
from localspec.policy.gain import Expected
from localspec.policy.prices import Prices
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


KNOWN = replace(COMPUTES, prior=0.5, spread=1e-6)
"""For rates that are counted, not estimated."""


def informed(reply: Recorded, sources: Sequence[str], curve: Curve) -> float:
    """The time of the reply in plain tokens with drafts by the controller's own rule, where the
    acceptance by confidence and the frequency of confidences are those of the whole reply, and any
    loss is affordable. A policy that sees confidences only cannot do much better, and one that sees
    more gains 0 to 4 % with the evidence there is (docs/LOG.md, 2026-11-23). Rates are counted in
    the reply that they are used for, which is worth up to 0.03 of `clairvoyant` by itself.
    """
    cost = relative(curve.table())[1 : LONGEST + 2]
    paces = []
    for name in sources:
        expected = Expected(_rates(reply, name), len(cost) - 1)
        prices = Prices(cost, ASKING[name].token)
        if expected.gain(prices) > 0:
            paces.append((name, ASKING[name].token, GainPace(partial(_same, expected), prices)))
    at, units = 0, 0.0
    while at < reply.length:
        drafted = accepted = 0
        for name, token, pace in paces:
            chain, seen = reply.sources[name].at(at), list[float]()
            for confidence in chain.confidences[: max(0, reply.length - at - 1)]:
                seen.append(confidence)
                if not pace.more(seen):
                    break
                drafted += 1
                if token and not pace.further(seen):
                    break
            units += token * len(seen)
            accepted = min(chain.accepted, drafted)
            if drafted:
                break
        units += float(cost[drafted])
        at += 1 + accepted
    return units


def _same(expected: Expected) -> Expected:
    return expected


def _rates(reply: Recorded, name: str) -> AcceptanceEstimate:
    """Acceptance by confidence in the whole reply."""
    found = AcceptanceEstimate(kind=KNOWN, seen=[1e-9] * BINS)
    for at in range(reply.length):
        chain = reply.sources[name].at(at)
        for i, confidence in enumerate(chain.confidences[: chain.accepted + 1]):
            b = bin_of(confidence)
            found.judged[b] += 1
            found.accepted[b] += i < chain.accepted
            found.seen[b] += 1
    return found


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
