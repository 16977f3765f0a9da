"""What the controller reaches on recorded evidence: against plain decoding and three bounds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge
from localspec.policy.tuning import ControllerTuning
from policy_lab.bounds import best_fixed, clairvoyant
from policy_lab.curves import Curve, Disturbance, swept
from policy_lab.evidence import Recorded
from policy_lab.world import ASKING, Running, World

SETS: tuple[tuple[str, ...], ...] = (
    ("model",),
    ("close",),
    ("bad",),
    ("random",),
    ("sure",),
    ("suffix",),
    ("ngram",),
    ("suffix", "model"),
)
"""Drafters that a controller has."""


def controller(
    curve: Curve,
    disturbance: Disturbance,
    sources: Sequence[str],
    seed: int,
    tuning: ControllerTuning = ControllerTuning(),  # noqa: B008 - frozen
) -> Controller:
    """A controller that has swept the machine and knows nothing of the drafters."""
    sweep = swept(curve, disturbance, seed)
    drafts = {s: ASKING[s].token * sweep[1] for s in sources if ASKING[s].token}
    free = [s for s in sources if not ASKING[s].token]
    return Controller(Knowledge({0: Costs(sweep, drafts)}), list(sources), free=free, tuning=tuning)


@dataclass(frozen=True, slots=True)
class Reached:
    """Some replies by one controller, or each by a fresh one."""

    mean: float
    """Mean of the ratios to plain decoding."""
    worst: float
    """Ratio of the reply below which one in a hundred is."""
    least: float
    of_bound: float
    """Mean share of what a clairvoyant policy reaches."""
    tokens: float
    """Ratio over all tokens."""

    @classmethod
    def of(cls, played: Sequence[Running], sources: Sequence[str], curve: Curve) -> Reached:
        """Sum them up."""
        ratios = np.array([p.ratio for p in played])
        bounds = [p.reply.length / clairvoyant(p.reply, sources, curve) for p in played]
        return cls(
            float(ratios.mean()),
            float(np.quantile(ratios, 0.01)),
            float(ratios.min()),
            float(np.mean(ratios / bounds)),
            sum(p.at for p in played) / sum(p.units for p in played),
        )

    def __str__(self) -> str:
        return (
            f"{self.mean:.3f} ({self.of_bound:.2f} of the bound), tokens {self.tokens:.3f}, "
            f"worst 1 % {self.worst:.3f}, least {self.least:.3f}"
        )


def cold(
    replies: Sequence[Recorded], curve: Curve, disturbance: Disturbance, sources: Sequence[str]
) -> Reached:
    """Every reply is the first of a session."""
    played = []
    for seed, reply in enumerate(replies):
        world = World(controller(curve, disturbance, sources, seed), curve, disturbance, seed)
        played += world.play([reply])
    return Reached.of(played, sources, curve)


def warm(
    replies: Sequence[Recorded], curve: Curve, disturbance: Disturbance, sources: Sequence[str]
) -> Reached:
    """The second half of a session with all replies twice, in random order."""
    order = list(replies)
    random.Random(1).shuffle(order)
    world = World(controller(curve, disturbance, sources, 0), curve, disturbance, 0)
    return Reached.of(world.play([*order, *order])[len(order) :], sources, curve)


def together(
    replies: Sequence[Recorded],
    curve: Curve,
    disturbance: Disturbance,
    sources: Sequence[str],
    at_once: int,
) -> float:
    """Ratio of all tokens to batched plain decoding, so many requests at a time."""
    order = list(replies)
    random.Random(2).shuffle(order)
    world = World(controller(curve, disturbance, sources, 0), curve, disturbance, 0)
    played = world.play(order, at_once)
    return sum(p.at for p in played) / sum(p.units for p in played)


def lines(
    replies: Sequence[Recorded],
    curve: Curve,
    disturbance: Disturbance,
    sources: Sequence[str],
    requests: Sequence[int],
) -> list[str]:
    """The report of one machine and one set of drafters."""
    found = [
        f"{curve.name}, {disturbance.name}, {' + '.join(sources)}",
        f"  best fixed length {best_fixed(replies, sources, curve):.3f}",
        f"  cold  {cold(replies, curve, disturbance, sources)}",
        f"  warm  {warm(replies, curve, disturbance, sources)}",
    ]
    batched = [f"{n}: {together(replies, curve, disturbance, sources, n):.3f}" for n in requests]
    return [*found, f"  requests at once  {', '.join(batched)}"] if batched else found
