"""Training the tower alone, then projector and target together."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import torch
from demo.batches import Batch
from demo.loop import Log, Loop, Work, distance, falling, optimizers
from demo.model import Model, norm
from demo.precision import arithmetic
from heads.frozen import load
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from .lessons import Lessons, Teacher
from .scenes import HEADS, Scene, pixels, scene
from .talks import note
from .tower import ROWS, SIDE, Heads, Projector, Tower

TRAINED, HELD_OUT = 1, 1_000_000_007
"""Seeds of pictures. Those that are drawn from the second are never trained on."""


def pictures(rng: Random, number: int) -> tuple[list[Scene], Tensor]:
    """So many scenes, and their pixels, (B, side, side, 3) uint8."""
    scenes = [scene(rng) for _ in range(number)]
    return scenes, torch.from_numpy(np.stack([pixels(one, rng, SIDE) for one in scenes]))


def _errors(answers: list[Tensor], scenes: list[Scene]) -> tuple[Tensor, Tensor]:
    """The loss, and the share of right answers of each head."""
    goal = torch.tensor([one.labels for one in scenes]).T
    losses = [
        functional.cross_entropy(a.float(), g, ignore_index=-1)
        for a, g in zip(answers, goal, strict=True)
    ]
    right = [(a.argmax(-1) == g)[g >= 0].float().mean() for a, g in zip(answers, goal, strict=True)]
    return torch.stack(losses).nansum(), torch.stack(right)


def _optimizers(tower: Tower, rest: nn.Module) -> list[torch.optim.Optimizer]:
    matrices = [p for p in tower.layers.parameters() if p.ndim == 2]
    known = {id(p) for p in matrices}
    others = [p for p in (*tower.parameters(), *rest.parameters()) if id(p) not in known]
    return optimizers(matrices, others, (3e-3, 2e-3), 0.01, (0.9, 0.999))


def _looped(
    made: Sequence[torch.optim.Optimizer],
    work: Work,
    rate: Callable[[float, int], float],
    minutes: float,
    clipped: Sequence[nn.Parameter] = (),
) -> Loop:
    """A loop for minutes of processor time."""
    return Loop(made, work, rate, minutes, clock=time.process_time, clipped=clipped)


def look(minutes: float, seed: int, folder: Path, log: Log, batch: int = 64) -> None:
    """Train the tower with heads that ask for the labels of scenes, for minutes of processor time."""
    torch.manual_seed(seed)
    tower, heads = Tower(), Heads(HEADS)
    rng = Random(TRAINED)

    def work(_share: float, _step: int) -> Sequence[float]:
        scenes, seen = pictures(rng, batch)
        loss, right = _errors(heads(tower(seen)), scenes)
        loss.backward()
        return [loss.item(), *right.detach().tolist()]

    def save() -> None:
        torch.save({"tower": tower.state_dict(), "heads": heads.state_dict()}, folder / "tower.pt")

    def told(mean: np.ndarray) -> None:
        shown = " ".join(f"{x:.2f}" for x in mean[1:])
        log(f"step {loop.step}: loss {mean[0]:.3f}, right {shown}")
        save()

    parameters = [*tower.parameters(), *heads.parameters()]
    made = _optimizers(tower, heads)
    loop = _looped(made, work, falling(50, 1.6, 0.02), minutes, parameters)
    loop.run(100, told)
    save()
    scenes, seen = pictures(Random(HELD_OUT), 1000)
    with torch.no_grad():
        _, right = _errors(heads(tower(seen)), scenes)
    log(f"held out, {loop.step * batch} pictures trained on: {' '.join(f'{x:.3f}' for x in right)}")


_SHARP = 8.0
"""How much nearer to its own token than to others a row has to be."""
_RATES = {"model": 1.2e-3, "tower": 2e-4, "projector": 1e-3}
_TALKS = 24
"""Conversations of a step."""
_STAYING = 1.5
"""Weight of what the target answers without pictures, in every other step."""


@dataclass
class Seeing:
    """A target and what makes rows for it."""

    model: Model
    tower: Tower
    projector: Projector

    def logits(self, lessons: Lessons, quant: bool) -> Tensor:
        """(N, vocabulary): of the N judged places."""
        x = functional.embedding(lessons.tokens, self.model.embed)
        made = self.projector(self.tower(lessons.seen))
        x = x.masked_scatter(lessons.rows[..., None], made.to(x.dtype))
        last = self.model.through(x, None, quant)[-1][lessons.judged]
        return self.model.head(norm(last, self.model.norm))

    def save(self, folder: Path) -> None:
        parts = {name: getattr(self, name).state_dict() for name in ("model", "tower", "projector")}
        torch.save(parts, folder / "seeing.part")
        (folder / "seeing.part").rename(folder / "seeing.pt")


def spell(
    target: Path, coder: Tokenizer, minutes: float, seed: int, folder: Path, log: Log
) -> None:
    """Train projector and tower so that the rows of a picture spell a note of what it shows, in the tokens of
    the target, which can copy. Without that it learned how answers sound for hundreds
    of steps before it looked.
    """
    torch.manual_seed(seed)
    tower = Tower()
    tower.load_state_dict(torch.load(folder / "tower.pt", weights_only=True)["tower"])
    embed = load(target).embed.detach()
    projector, scale = Projector(embed.shape[1]), embed.std()
    known = torch.tensor(
        sorted({t for one in pictures(Random(0), 2000)[0] for t in _spelled(one, coder)})
    )
    words, blank = embed[known] / scale, int(torch.searchsorted(known, _blank(coder)))
    rng = Random(seed)

    def work(_share: float, _step: int) -> Sequence[float]:
        scenes, seen = pictures(rng, 64)
        goal = torch.searchsorted(known, torch.tensor([_spelled(one, coder) for one in scenes]))
        made = projector(tower(seen))
        near = torch.cdist(made.flatten(0, 1), words).square() / words.shape[1]
        weight = torch.where(goal == blank, 0.1, 1.0).flatten()
        each = functional.cross_entropy(-_SHARP * near, goal.flatten(), reduction="none")
        each = each + near.gather(1, goal.view(-1, 1))[:, 0]
        loss = (each * weight).sum() / weight.sum()
        loss.backward()
        same = (near.argmin(1).view_as(goal) == goal)[goal != blank].float().mean()
        return loss.item(), same.item()

    def told(mean: np.ndarray) -> None:
        log(f"step {loop.step}: loss {mean[0]:.3f}, right tokens {mean[1]:.3f}")
        _save_rows(tower, projector, scale, folder)

    loop = _looped(_optimizers(tower, projector), work, falling(50, 1.6, 0.02), minutes)
    loop.run(50, told)
    _save_rows(tower, projector, scale, folder)


def _blank(coder: Tokenizer) -> int:
    return coder.encode("\n").ids[0]


def _spelled(one: Scene, coder: Tokenizer) -> list[int]:
    """Tokens of its note, four for each word; the rest are line breaks."""
    blank = _blank(coder)
    found = [[*coder.encode(word).ids, *[blank] * 4][:4] for word in note(one)]
    return [*itertools.chain(*found), *[blank] * ROWS][:ROWS]


def _save_rows(tower: Tower, projector: Projector, scale: Tensor, folder: Path) -> None:
    """Projector's rows on the scale of the embedding."""
    state = {
        k: v * scale if k.startswith("second") else v for k, v in projector.state_dict().items()
    }
    torch.save({"tower": tower.state_dict(), "projector": state}, folder / "rows.pt")


def read(target: Path, file: Path) -> Seeing:
    """The embedded target with what `spell` made (rows.pt), or `talk_about` (seeing.pt)."""
    model = load(target)
    found = Seeing(model, Tower(), Projector(model.shape.width))
    for name, state in torch.load(file, weights_only=True).items():
        getattr(found, name).load_state_dict(state)
    return found


def talk_about(
    seeing: Seeing, teacher: Teacher, own: Iterator[Batch], minutes: float, folder: Path, log: Log
) -> None:
    """Train in place for minutes of processor time: lessons about pictures, and the demo's own
    corpus without pictures, on which the target is to stay as it was.
    """
    before = copy.deepcopy(seeing.model)
    parts = {name: getattr(seeing, name).requires_grad_(requires_grad=True) for name in _RATES}
    groups = [
        {"params": list(part.parameters()), "lr": _RATES[name]} for name, part in parts.items()
    ]
    kept = torch.tensor(0.0)

    def work(_share: float, step: int) -> Sequence[float]:
        nonlocal kept
        lessons = teacher.lessons(_TALKS)
        with arithmetic():
            logits = seeing.logits(lessons, True)
        goal = lessons.targets[lessons.judged]
        loss = functional.cross_entropy(logits.float(), goal)
        right = (logits.argmax(-1) == goal).float().mean()
        loss.backward()
        if step % 2 == 0:
            batch = next(own)
            with arithmetic():
                with torch.no_grad():
                    was = before(batch.tokens, batch.talk)
                kept = distance(seeing.model(batch.tokens, batch.talk, True), was, batch.weights)
            (_STAYING * kept).backward()
        return loss.item(), right.item(), kept.item()

    def told(mean: np.ndarray) -> None:
        log(
            f"step {loop.step}: loss {mean[0]:.3f}, right tokens {mean[1]:.3f}, "
            f"from the demo {mean[2]:.4f}"
        )
        seeing.save(folder)

    made = [torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0)]
    parameters = [p for group in groups for p in group["params"]]
    loop = _looped(made, work, falling(20, 1.5, 0.03), minutes, parameters)
    loop.run(20, told)
    seeing.save(folder)
    log(f"{loop.step * _TALKS} conversations")


def distill(draft: Path, teacher: Teacher, minutes: float, folder: Path, log: Log) -> None:
    """Train the embedded draft on what the target says about pictures; it reads the text alone."""
    seeing = read(draft.with_name("target.gguf"), folder / "seeing.pt")
    model = load(draft).requires_grad_(requires_grad=True)

    def work(_share: float, _step: int) -> Sequence[float]:
        lessons = teacher.lessons(_TALKS)
        tokens, judged = lessons.blind
        with arithmetic():
            with torch.no_grad():
                goal = seeing.logits(lessons, True)
            logits = model(tokens)[judged]
        loss = distance(logits, goal, torch.ones(len(goal)))
        loss.backward()
        same = (logits.argmax(-1) == goal.argmax(-1)).float().mean()
        return loss.item(), same.item()

    def told(mean: np.ndarray) -> None:
        log(f"step {loop.step}: distance {mean[0]:.3f}, same choice {mean[1]:.3f}")
        torch.save(model.state_dict(), folder / "draft.pt")

    parameters = list(model.parameters())
    made = [torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0)]
    loop = _looped(made, work, falling(20, 1.5, 0.03), minutes, parameters)
    loop.run(20, told)
    torch.save(model.state_dict(), folder / "draft.pt")


def read_draft(draft: Path, folder: Path) -> Model:
    """What `distill` made."""
    model = load(draft)
    model.load_state_dict(torch.load(folder / "draft.pt", weights_only=True))
    return model
