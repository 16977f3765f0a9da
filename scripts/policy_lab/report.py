"""The results of the controller on recorded evidence: against plain decoding and two bounds."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from localspec.policy import Policy
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.simple import Plain
from localspec.policy.storage import Knowledge
from policy_lab.bounds import best_fixed, clairvoyant
from policy_lab.curves import Curve, Disturbance, swept
from policy_lab.evidence import Recorded
from policy_lab.world import ASKING, Arrivals, Running, World

SHORT = 48
"""Tokens of short replies."""

LIMITS = (8, 16, 32, 64, 128)
"""``max_tokens`` of short replies."""

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


@dataclass(frozen=True, slots=True)
class Reached:
    """Some replies by one controller, or each by a fresh one."""

    mean: float
    """Mean of the ratios to plain decoding."""
    worst: float
    """Ratio of the reply below which one in a hundred is."""
    least: float
    tokens: float
    """Ratio over all tokens."""
    whole: float
    """Mean of the ratios with prompts, and the one below which one in a hundred is."""
    worst_whole: float
    played: Sequence[Running]
    sources: Sequence[str]
    curve: Curve

    @classmethod
    def of(cls, played: Sequence[Running], sources: Sequence[str], curve: Curve) -> Reached:
        """Sum them up."""
        ratios = np.array([p.ratio for p in played])
        return cls(
            float(ratios.mean()),
            float(np.quantile(ratios, 0.01)),
            float(ratios.min()),
            sum(p.at for p in played) / sum(p.units for p in played),
            float(np.mean([p.whole for p in played])),
            float(np.quantile([p.whole for p in played], 0.01)),
            played,
            sources,
            curve,
        )

    @property
    def of_bound(self) -> float:
        """Mean share of what a clairvoyant policy reaches, which takes long to find."""
        return float(
            np.mean(
                [
                    p.ratio * clairvoyant(p.reply, self.sources, self.curve) / p.reply.length
                    for p in self.played
                ]
            )
        )

    @property
    def brief(self) -> str:
        """Without bounds."""
        return f"{self.mean:.3f}, worst 1 % {self.worst:.3f}"

    def __str__(self) -> str:
        return (
            f"{self.mean:.3f} ({self.of_bound:.2f} of the bound), tokens {self.tokens:.3f}, "
            f"worst 1 % {self.worst:.3f}, least {self.least:.3f}; with prompts {self.whole:.3f}, "
            f"worst 1 % {self.worst_whole:.3f}"
        )


@dataclass(frozen=True)
class Setting:
    """One machine, what disturbs it, and the drafters that a controller has there."""

    curve: Curve
    disturbance: Disturbance
    sources: Sequence[str]

    def controller(
        self,
        seed: int,
        *,
        believed: Mapping[int, float] | None = None,
        draft_factor: float = 1.0,
    ) -> Controller:
        """A controller that has swept the machine and knows nothing of the drafters. ``believed``
        are costs that it has instead of those swept; drafts are believed to cost ``draft_factor``
        times what they do.
        """
        sweep, names = swept(self.curve, self.disturbance, seed), self.sources
        drafts = {s: ASKING[s].token * sweep[1] * draft_factor for s in names if ASKING[s].token}
        free = [s for s in names if not ASKING[s].token]
        costs = Costs(sweep if believed is None else believed, drafts)
        return Controller(Knowledge({0: costs}), list(names), free=free, pads=True)

    def world(self, policy: Policy, seed: int, *, limited: bool = False) -> World:
        """The machine with that policy, whose drafters read prompts unless it only decodes."""
        names = () if isinstance(policy, Plain) else self.sources
        return World(policy, self.curve, self.disturbance, seed, names, limited=limited)

    def cold(self, replies: Sequence[Recorded], *, limited: bool = False) -> Reached:
        """Every reply is the first of a session. If ``limited``, ``max_tokens`` ends it."""
        played = []
        for seed, reply in enumerate(replies):
            played += self.world(self.controller(seed), seed, limited=limited).play([reply])
        return Reached.of(played, self.sources, self.curve)

    def warm(self, replies: Sequence[Recorded], *, limited: bool = False, seed: int = 0) -> Reached:
        """The second half of a session with all replies twice, in random order. ``seed`` decides on
        the order and the disturbance.
        """
        order = list(replies)
        random.Random(seed + 1).shuffle(order)
        world = self.world(self.controller(seed), seed, limited=limited)
        return Reached.of(world.play([*order, *order])[len(order) :], self.sources, self.curve)

    def together(
        self, replies: Sequence[Recorded], at_once: int, arrivals: Arrivals = "queue"
    ) -> float:
        """Ratio to batched plain decoding, so many requests at a time, prompts included: of the
        time until all are answered, or where they arrive at fixed times, of the time until each is.
        """
        order = list(replies)
        random.Random(2).shuffle(order)
        times = []
        for policy in (Plain("compared with"), self.controller(0)):
            world = self.world(policy, 0)
            played = world.play(order, at_once, arrivals)
            latencies = sum(p.ended - p.arrived for p in played)
            times.append(latencies if arrivals == "staggered" else world.seconds)
        plain, drafted = times
        return plain / drafted

    def __str__(self) -> str:
        return f"{self.curve.name}, {self.disturbance.name}, {' + '.join(self.sources)}"

    def lines(self, replies: Sequence[Recorded], requests: Sequence[int]) -> list[str]:
        """The report."""
        found = [
            str(self),
            f"  best fixed length {best_fixed(replies, self.sources, self.curve):.3f}",
            f"  cold  {self.cold(replies)}",
            f"  warm  {self.warm(replies)}",
        ]
        for length in LIMITS:
            some = [reply.cut(length) for reply in replies if reply.length >= length]
            first, later = self.cold(some, limited=True), self.warm(some, limited=True)
            found.append(f"  max_tokens {length:3}  cold {first.brief}, warm {later.brief}")
        short = [reply.cut(SHORT) for reply in replies]
        for n in requests:
            ratios = [
                f"{arrivals} {self.together(some, n, arrivals):.3f}{what}"
                for some, what in ((replies, ""), (short, " short"))
                for arrivals in get_args(Arrivals)
            ]
            found.append(f"  {n} at once  {', '.join(ratios)}")
        return found
