"""Training a head on the frozen target, within a budget of minutes or steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from demo.batches import Batch
from demo.model import Model
from demo.precision import arithmetic
from torch import Tensor, nn
from torch.nn import functional

from heads.frozen import look
from heads.layer import shifted

STEPS = 4
"""Drafted places that are trained in the end."""


@dataclass(frozen=True)
class Plan:
    """Budget and learning rates of a run."""

    minutes: float
    max_steps: int | None = None
    matrix_rate: float = 1.5e-2
    other_rate: float = 4e-3
    warm_up: int = 30
    decay_from: float = 0.3
    phases: tuple[float, ...] = (0.0, 0.35, 0.94)
    """From these shares of the schedule on: many drills, all kinds, windows of a whole context."""
    begin: float = 0.0
    """Where in the schedule the run starts: one that goes on with a head skips the beginning."""
    fade: float = 0.8
    """Weight of a place against the one before it: fewer rounds get there."""
    report: int = 50


Stream = Callable[[int, int], Iterator[Batch]]
"""Batches for a seed and a phase."""


def distance(draft: Tensor, goal: Tensor) -> Tensor:
    """KL divergence from the target's distributions to the draft's, over the whole vocabulary.

    Args:
        draft: logits, (N, V).
        goal: the target's log probabilities, (N, V).
    """
    return functional.kl_div(
        draft.float().log_softmax(-1), goal, reduction="batchmean", log_target=True
    )


class Run:
    """One head, its optimizers and its place in the budget."""

    def __init__(self, head: nn.Module, target: Model, plan: Plan, seed: int) -> None:
        self.head, self.target, self.plan, self.seed = head, target, plan, seed
        own = [p for p in head.parameters() if p.requires_grad]
        # Muon is meant for matrices between hidden states, not for those that give logits.
        inner = [p for p in own if p.ndim == 2 and p.shape[0] < target.shape.vocab]
        chosen = {id(p) for p in inner}
        outer = [p for p in own if id(p) not in chosen]
        self.optimizers = [
            torch.optim.Muon(
                inner, lr=plan.matrix_rate, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(outer, lr=plan.other_rate, betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self.step, self.seconds, self.tokens = 0, 0.0, 0

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The weighted loss, and that of each place; only rows that write a reply count."""
        seen = look(self.target, batch.tokens, batch.talk)
        # The chain of every place must have begun in the same conversation.
        places = next(n for start, n in reversed(self.head.PLACES) if self.share() >= start)
        rows = (batch.weights == 1) & (batch.talk == shifted(batch.talk, STEPS))
        with torch.no_grad():
            goal = self.target.head(seen.hidden[rows]).float().log_softmax(-1)
        parts = torch.stack(
            [
                distance(functional.linear(state[rows], self.head.matrix(n)), goal)
                for n, state in enumerate(self.head(seen, places), 1)
            ]
        )
        fading = self.plan.fade ** torch.arange(places)
        return (parts * fading).sum() / fading.sum(), parts.detach()

    def share(self) -> float:
        """How far the run is in its schedule; 1 when the budget is used up."""
        if self.plan.max_steps:
            used = self.step / self.plan.max_steps
        else:
            used = self.seconds / (self.plan.minutes * 60)
        return self.plan.begin + (1 - self.plan.begin) * used

    def rate(self) -> float:
        warm = min(1.0, (self.step + 1) / self.plan.warm_up)
        left = (1 - self.share()) / (1 - self.plan.decay_from)
        return warm * max(0.02, min(1.0, left))

    def run(self, stream: Stream, log: Callable[[str], None]) -> None:
        """Train until the budget is used up."""
        phase, source, recent = None, None, []
        while self.share() < 1:
            began = time.monotonic()
            now_in = sum(self.share() >= start for start in self.plan.phases) - 1
            if phase != now_in:
                phase, source = now_in, stream(self.seed * 1_000_003 + self.step, now_in)
            assert source is not None
            batch = next(source)
            with arithmetic():
                loss, parts = self.loss(batch)
            loss.backward()
            peaks = (self.plan.matrix_rate, self.plan.other_rate)
            for optimizer, peak in zip(self.optimizers, peaks, strict=True):
                for group in optimizer.param_groups:
                    group["lr"] = peak * self.rate()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            self.step += 1
            self.tokens += batch.tokens.numel()
            self.seconds += time.monotonic() - began
            recent.append(parts)
            if self.step % self.plan.report == 0:
                mean = torch.stack([r for r in recent if len(r) == len(parts)]).mean(0)
                log(
                    f"step {self.step} {self.share():.2f} KL by position "
                    + " ".join(f"{x:.3f}" for x in mean)
                    + f", {self.tokens / self.seconds:.0f} tokens/s"
                )
                recent = []

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(self.head.state_dict(), path)
