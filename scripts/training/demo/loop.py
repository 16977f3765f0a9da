"""The one loop of training: optimizers, their rates, and a budget of steps or minutes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from .batches import Batch

Log = Callable[[str], None]
Work = Callable[[float, int], Sequence[float]]
"""From the share of the budget that is used and the step: figures of the step, whose losses it sends
backward."""
Stream = Callable[[int, int], Iterator[Batch]]
"""Batches for a seed and a phase."""
Told = Callable[[np.ndarray], object]
"""Is told the means of figures; anything true ends the training."""


def distance(student: Tensor, teacher: Tensor, weights: Tensor) -> Tensor:
    """KL divergence from the teacher's distribution to the student's, over the whole vocabulary."""
    goal = teacher.float().log_softmax(-1)
    kl = (goal.exp() * (goal - student.float().log_softmax(-1))).sum(-1)
    return (kl * weights).sum() / weights.sum()


def optimizers(
    matrices: Iterable[nn.Parameter],
    others: Iterable[nn.Parameter],
    rates: tuple[float, float],
    decay: float = 0.02,
    betas: tuple[float, float] = (0.9, 0.95),
) -> list[torch.optim.Optimizer]:
    """Muon for matrices between hidden states, AdamW for the rest."""
    return [
        torch.optim.Muon(
            list(matrices), lr=rates[0], weight_decay=decay, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(list(others), lr=rates[1], betas=betas, weight_decay=0.0),
    ]


def linear(warm_up: int, decay_from: float) -> Callable[[float, int], float]:
    """A rate that rises for so many steps, and falls from that share of the budget on."""

    def rate(share: float, step: int) -> float:
        left = (1 - share) / (1 - decay_from)
        return min(1.0, (step + 1) / warm_up) * max(0.02, min(1.0, left))

    return rate


def falling(warm_up: int, steep: float, least: float) -> Callable[[float, int], float]:
    """A rate that rises for so many steps, and falls to ``least`` at the end."""
    return lambda share, step: min(1, (step + 1) / warm_up, max(least, steep * (1 - share)))


class Phases:
    """Batches of the phase that a share of the budget is in."""

    def __init__(self, stream: Stream, starts: Sequence[float], seed: int) -> None:
        self._stream, self._starts, self._seed = stream, starts, seed
        self._phase = -1

    def next(self, share: float, step: int) -> Batch:
        """The next one."""
        phase = sum(share >= start for start in self._starts) - 1
        if phase != self._phase:
            # The step is part of the seed, so a resumed run does not repeat its data.
            self._phase, self._source = phase, self._stream(self._seed * 1_000_003 + step, phase)
        return next(self._source)


@dataclass
class Loop:
    """A training and its place in the budget."""

    optimizers: Sequence[torch.optim.Optimizer]
    work: Work
    rate: Callable[[float, int], float]
    """Part of the optimizers' own rates, by share of the budget and step."""
    minutes: float = 0.0
    max_steps: int | None = None
    """In place of minutes: the same on every run."""
    clock: Callable[[], float] = time.monotonic
    """`time.process_time` counts the time of the processor."""
    begin: float = 0.0
    """Where in the schedule it starts."""
    clipped: Sequence[nn.Parameter] = ()
    """Parameters whose gradients are cut to a norm of 1 at most."""
    step: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not (self.minutes or self.max_steps):
            raise ValueError("a training needs a budget of minutes or steps")
        self._peaks = [[group["lr"] for group in o.param_groups] for o in self.optimizers]

    def run(self, report: int, told: Told) -> None:
        """Train until the budget is used up; every so many steps figures are told."""
        began, recent = self.clock() - self.seconds, list[Sequence[float]]()
        while (share := self._share(began)) < 1:
            for optimizer, rates in zip(self.optimizers, self._peaks, strict=True):
                for group, peak in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = peak * self.rate(share, self.step)
            recent.append(self.work(share, self.step))
            if self.clipped:
                nn.utils.clip_grad_norm_(self.clipped, 1.0)
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            self.step += 1
            if self.step % report == 0:
                same = [one for one in recent if len(one) == len(recent[-1])]
                recent = []
                if told(np.nanmean(same, axis=0)):
                    break

    def _share(self, began: float) -> float:
        self.seconds = self.clock() - began
        by_clock = self.seconds / (60 * self.minutes) if self.minutes else 0.0
        used = self.step / self.max_steps if self.max_steps else by_clock
        return self.begin + (1 - self.begin) * used
