"""Training the target, and distilling the draft from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from .batches import Batch
from .loop import Log, Loop, Phases, Stream, distance, linear, optimizers
from .model import Model, Shape
from .precision import arithmetic

TARGET = Shape(vocab=2048, width=256, layers=6, heads=4, kv_heads=2, hidden=768)
DRAFT = Shape(vocab=2048, width=128, layers=3, heads=2, kv_heads=1, hidden=384)
_SAVE_S = 240.0


@dataclass(frozen=True)
class Plan:
    minutes: float
    max_steps: int | None = None
    matrix_rate: float = 5e-3
    other_rate: float = 3e-3
    warm_up: int = 60
    decay_from: float = 0.35
    # From this share of the budget on, weights are rounded as Q4_0 in the forward pass.
    quant_from: float = 0.7
    # From these shares of the budget on, the next diet is served: drills, all kinds, long windows.
    phases: tuple[float, ...] = (0.0, 0.35, 0.97)
    # A student reads the corpus first, which costs a third, and listens to its teacher from here on.
    teach_from: float = 0.45
    report: int = 50


def masked_loss(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    loss = functional.cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), reduction="none"
    )
    w = weights.flatten()
    return (loss * w).sum() / w.sum()


class Trainer:
    """One model and its loop; saved and resumed as a whole."""

    def __init__(
        self, shape: Shape, plan: Plan, folder: Path, seed: int, teacher: Model | None = None
    ) -> None:
        torch.manual_seed(seed)
        self.model, self._plan, self._folder, self._seed = Model(shape), plan, folder, seed
        named = list(self.model.named_parameters())
        inner = {name for name, p in named if p.ndim == 2 and "blocks" in name}
        self._optimizers = optimizers(
            [p for name, p in named if name in inner],
            [p for name, p in named if name not in inner],
            (plan.matrix_rate, plan.other_rate),
        )
        rate = linear(plan.warm_up, plan.decay_from)
        self.loop = Loop(self._optimizers, self._work, rate, plan.minutes, plan.max_steps)
        self.tokens, self._saved = 0, 0.0
        self._forward = torch.compile(self._loss, dynamic=False)
        self._goal = torch.compile(teacher, dynamic=False) if teacher else None

    def _loss(self, batch: Batch, goal: Tensor | None, quant: bool) -> tuple[Tensor, Tensor]:
        logits = self.model(batch.tokens, batch.talk, quant)
        exact = masked_loss(logits, batch.targets, batch.weights)
        if goal is None:
            return exact, exact.detach()
        return distance(logits, goal, batch.weights) + 0.1 * exact, exact.detach()

    def _work(self, share: float, step: int) -> Sequence[float]:
        batch, goal = self._batches.next(share, step), None
        with arithmetic():
            if self._goal is not None and share >= self._plan.teach_from:
                with torch.no_grad():
                    goal = self._goal(batch.tokens, batch.talk, True)
            loss, exact = self._forward(batch, goal, share >= self._plan.quant_from)
        loss.backward()
        self.tokens += batch.tokens.numel()
        return loss.item(), exact.item()

    def run(self, stream: Stream, log: Log) -> None:
        """Train from where it was saved, if it was, until the budget is used up."""
        loop = self.loop
        resumed = f", resumed at step {loop.step}" if self._resume() else ""
        log(f"{self.model.size()} parameters{resumed}")
        self._batches = Phases(stream, self._plan.phases, self._seed)

        def told(mean: np.ndarray) -> None:
            log(f"step {loop.step} loss {mean[0]:.4f} ce {mean[1]:.4f}, {self.tokens} tokens")
            if loop.seconds - self._saved > _SAVE_S:
                self._save("last")

        loop.run(self._plan.report, told)
        self._save("last")
        self._save("final")
        log(f"{self.tokens} tokens in {loop.step} steps, {loop.seconds / 60:.1f} minutes")

    def _save(self, name: str) -> None:
        self._saved = self.loop.seconds
        state = {
            "shape": self.model.shape.dict(),
            "model": self.model.state_dict(),
            "step": self.loop.step,
            "seconds": self.loop.seconds,
            "tokens": self.tokens,
            "optimizers": [o.state_dict() for o in self._optimizers],
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / f"{name}.part"
        torch.save(state, part)
        part.rename(self._folder / f"{name}.pt")

    def _resume(self) -> bool:
        path = self._folder / "last.pt"
        if not path.exists():
            return False
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.loop.step, self.loop.seconds = state["step"], state["seconds"]
        self.tokens, self._saved = state["tokens"], state["seconds"]
        return True


def load(folder: Path) -> Model:
    """The model of the newest checkpoint in a folder."""
    path = folder / "final.pt"
    state = torch.load(path if path.exists() else folder / "last.pt", weights_only=True)
    model = Model(Shape(**state["shape"]))
    model.load_state_dict(state["model"])
    return model.eval()
