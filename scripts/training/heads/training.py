"""Training a head on the frozen target, within a budget of minutes or steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from demo.loop import Log, Loop, Phases, Stream, linear, optimizers
from demo.model import Model
from demo.precision import arithmetic
from torch import Tensor, nn
from torch.nn import functional

from heads.frozen import look
from heads.layer import shifted

STEPS = 4
"""Drafted places that are trained in the end."""
_PHASES = (0.0, 0.35, 0.94)
"""From these shares of the schedule on: many drills, all kinds, windows of a whole context."""
_FADE = 0.8
"""Weight of a place against the one before it: fewer rounds get there."""


def _distance(draft: Tensor, goal: Tensor) -> Tensor:
    """KL divergence from the target's distributions to the draft's, over the whole vocabulary.

    Args:
        draft: logits, (N, V).
        goal: the target's log probabilities, (N, V).
    """
    return functional.kl_div(
        draft.float().log_softmax(-1), goal, reduction="batchmean", log_target=True
    )


def train(
    head: nn.Module,
    target: Model,
    stream: Stream,
    budget: tuple[float, int | None],
    seed: int,
    log: Log,
    begin: float = 0.0,
) -> None:
    """Train in place for (minutes, or steps), from ``begin`` in the schedule on."""
    own = [p for p in head.parameters() if p.requires_grad]
    # Muon is meant for matrices between hidden states, not for those that give logits.
    inner = [p for p in own if p.ndim == 2 and p.shape[0] < target.shape.vocab]
    chosen = {id(p) for p in inner}
    outer = [p for p in own if id(p) not in chosen]
    batches, tokens = Phases(stream, _PHASES, seed), 0

    def work(share: float, step: int) -> Sequence[float]:
        nonlocal tokens
        batch = batches.next(share, step)
        with arithmetic():
            seen = look(target, batch.tokens, batch.talk)
            # The chain of every place must have begun in the same conversation.
            places = next(n for start, n in reversed(head.PLACES) if share >= start)
            rows = (batch.weights == 1) & (batch.talk == shifted(batch.talk, STEPS))
            with torch.no_grad():
                goal = target.head(seen.hidden[rows]).float().log_softmax(-1)
            parts = torch.stack(
                [
                    _distance(functional.linear(state[rows], head.matrix(n)), goal)
                    for n, state in enumerate(head(seen, places), 1)
                ]
            )
            fading = _FADE ** torch.arange(places)
            loss = (parts * fading).sum() / fading.sum()
        loss.backward()
        tokens += batch.tokens.numel()
        return parts.detach().tolist()

    def told(mean: np.ndarray) -> None:
        log(f"step {loop.step} KL by position {' '.join(f'{x:.3f}' for x in mean)}")

    log(f"{sum(p.numel() for p in own)} parameters")
    made = optimizers(inner, outer, (1.5e-2, 4e-3))
    loop = Loop(made, work, linear(30, 0.3), *budget, begin=begin)
    loop.run(50, told)
    log(f"{tokens} tokens in {loop.step} steps, {loop.seconds / 60:.1f} minutes")
