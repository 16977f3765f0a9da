"""Training the target, and distilling the draft from it, within a budget of minutes or steps."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from .batches import Batch
from .model import Model, Shape
from .precision import arithmetic

TARGET = Shape(vocab=2048, width=256, layers=6, heads=4, kv_heads=2, hidden=768)
DRAFT = Shape(vocab=2048, width=128, layers=3, heads=2, kv_heads=1, hidden=384)


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
    save_minutes: float = 4.0


Stream = Callable[[int, int], Iterator[Batch]]


def masked_loss(logits: Tensor, batch: Batch) -> Tensor:
    loss = functional.cross_entropy(
        logits.float().flatten(0, 1), batch.targets.flatten(), reduction="none"
    )
    w = batch.weights.flatten()
    return (loss * w).sum() / w.sum()


def distance(student: Tensor, teacher: Tensor, weights: Tensor) -> Tensor:
    """KL divergence from the teacher's distribution to the student's, over the whole vocabulary."""
    goal = teacher.float().log_softmax(-1)
    kl = (goal.exp() * (goal - student.float().log_softmax(-1))).sum(-1)
    return (kl * weights).sum() / weights.sum()


class Trainer:
    """One model, its two optimizers and its place in the budget; saved and resumed as a whole."""

    def __init__(
        self, shape: Shape, plan: Plan, folder: Path, seed: int, teacher: Model | None = None
    ) -> None:
        torch.manual_seed(seed)
        self.model, self.plan, self.folder, self.teacher, self.seed = (
            Model(shape),
            plan,
            folder,
            teacher,
            seed,
        )
        matrices = [
            p for name, p in self.model.named_parameters() if p.ndim == 2 and "blocks" in name
        ]
        others = [
            p for name, p in self.model.named_parameters() if not (p.ndim == 2 and "blocks" in name)
        ]
        self.optimizers = [
            torch.optim.Muon(
                matrices, lr=plan.matrix_rate, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(others, lr=plan.other_rate, betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self.step, self.seconds, self.tokens = 0, 0.0, 0
        self.forward = torch.compile(self._loss, dynamic=False)
        self.goal = torch.compile(teacher, dynamic=False) if teacher else None

    def _loss(self, batch: Batch, goal: Tensor | None, quant: bool) -> tuple[Tensor, Tensor]:
        logits = self.model(batch.tokens, batch.talk, quant)
        exact = masked_loss(logits, batch)
        if goal is None:
            return exact, exact.detach()
        return distance(logits, goal, batch.weights) + 0.1 * exact, exact.detach()

    def share(self) -> float:
        """How much of the budget is used up."""
        if self.plan.max_steps:
            return self.step / self.plan.max_steps
        return self.seconds / (self.plan.minutes * 60)

    def rate(self) -> float:
        warm = min(1.0, (self.step + 1) / self.plan.warm_up)
        left = (1 - self.share()) / (1 - self.plan.decay_from)
        return warm * max(0.02, min(1.0, left))

    def save(self, name: str = "last") -> None:
        state = {
            "shape": self.model.shape.dict(),
            "model": self.model.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "tokens": self.tokens,
            "optimizers": [o.state_dict() for o in self.optimizers],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f"{name}.part"
        torch.save(state, part)
        part.rename(self.folder / f"{name}.pt")

    def resume(self) -> bool:
        path = self.folder / "last.pt"
        if not path.exists():
            return False
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds, self.tokens = state["step"], state["seconds"], state["tokens"]
        return True

    def run(self, stream: Stream, log: Callable[[str], None]) -> None:
        plan, saved, shown, recent = self.plan, self.seconds, time.monotonic(), []
        phase, source, counted = None, None, self.tokens
        while self.share() < 1:
            began = time.monotonic()
            now_in = sum(self.share() >= start for start in plan.phases) - 1
            quant = self.share() >= plan.quant_from
            if phase != now_in:
                # The step is part of the seed, so a resumed run does not repeat its data.
                phase, source = now_in, stream(self.seed * 1_000_003 + self.step, now_in)
            assert source is not None
            batch = next(source)
            goal = None
            with arithmetic():
                if self.goal is not None and self.share() >= plan.teach_from:
                    with torch.no_grad():
                        goal = self.goal(batch.tokens, batch.talk, True)
                loss, exact = self.forward(batch, goal, quant)
            loss.backward()
            for optimizer, peak in zip(
                self.optimizers, (plan.matrix_rate, plan.other_rate), strict=True
            ):
                for group in optimizer.param_groups:
                    group["lr"] = peak * self.rate()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            self.step += 1
            self.tokens += batch.tokens.numel()
            recent.append((loss.item(), exact.item()))
            self.seconds += time.monotonic() - began
            if self.step % plan.report == 0:
                now = time.monotonic()
                speed = (self.tokens - counted) / (now - shown)
                mean = [sum(x) / len(recent) for x in zip(*recent, strict=True)]
                log(
                    f"step {self.step} {self.share():.3f} loss {mean[0]:.4f} ce {mean[1]:.4f} {speed:.0f} tok/s {self.seconds / 60:.1f} min"
                )
                recent, shown, counted = [], now, self.tokens
            if self.seconds - saved > plan.save_minutes * 60:
                self.save()
                saved = self.seconds
        self.save()
        self.save("final")


def load(folder: Path) -> Model:
    """The model of the newest checkpoint in a folder."""
    path = folder / "final.pt"
    state = torch.load(path if path.exists() else folder / "last.pt", weights_only=True)
    model = Model(Shape(**state["shape"]))
    model.load_state_dict(state["model"])
    return model.eval()
