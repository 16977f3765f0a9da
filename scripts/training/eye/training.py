"""Training the tower alone, then projector and target together."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import torch
from demo.batches import Batch
from demo.model import Model, norm
from demo.precision import arithmetic
from demo.training import distance
from heads.frozen import load
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from .lessons import Lessons, Teacher
from .scenes import HEADS, Scene, pixels, scene
from .talks import note
from .tower import ROWS, SIDE, Heads, Projector, Tower

Log = Callable[[str], None]
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


def _optimizers(tower: Tower, rest: nn.Module) -> tuple[list[torch.optim.Optimizer], list[float]]:
    """With their rates."""
    matrices = [p for p in tower.layers.parameters() if p.ndim == 2]
    known = {id(p) for p in matrices}
    others = [p for p in (*tower.parameters(), *rest.parameters()) if id(p) not in known]
    found = [
        torch.optim.Muon(matrices, lr=3e-3, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=2e-3, weight_decay=0.0),
    ]
    return found, [o.param_groups[0]["lr"] for o in found]


def look(minutes: float, seed: int, folder: Path, log: Log, batch: int = 64) -> None:
    """Train the tower with heads that ask for the labels of scenes, for minutes of processor time."""
    torch.manual_seed(seed)
    tower, heads = Tower(), Heads(HEADS)
    parameters = [*tower.parameters(), *heads.parameters()]
    optimizers, rates = _optimizers(tower, heads)
    rng, began, step, recent = Random(TRAINED), time.process_time(), 0, []
    while (share := (time.process_time() - began) / (60 * minutes)) < 1:
        for optimizer, rate in zip(optimizers, rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate * min(
                1, (step + 1) / 50, max(0.02, 1.6 * (1 - share))
            )
        scenes, seen = pictures(rng, batch)
        loss, right = _errors(heads(tower(seen)), scenes)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        recent.append((loss.item(), right.detach().numpy()))
        step += 1
        if step % 100 == 0:
            mean = np.nanmean([r for _, r in recent], axis=0)
            shown = " ".join(f"{x:.2f}" for x in mean)
            log(f"step {step}: loss {np.mean([x for x, _ in recent]):.3f}, right {shown}")
            recent = []
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(
                {"tower": tower.state_dict(), "heads": heads.state_dict()}, folder / "tower.pt"
            )
    torch.save({"tower": tower.state_dict(), "heads": heads.state_dict()}, folder / "tower.pt")
    scenes, seen = pictures(Random(HELD_OUT), 1000)
    with torch.no_grad():
        _, right = _errors(heads(tower(seen)), scenes)
    log(f"held out, {step * batch} pictures trained on: {' '.join(f'{x:.3f}' for x in right)}")


_SHARP = 8.0
"""How much nearer to its own token than to others a row has to be."""
_RATES = 1.2e-3, 2e-4, 1e-3
"""Of the target, the tower and the projector."""
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
    tower = Tower()
    tower.load_state_dict(torch.load(folder / "tower.pt", weights_only=True)["tower"])
    embed = load(target).embed.detach()
    projector, scale = Projector(embed.shape[1]), embed.std()
    optimizers, rates = _optimizers(tower, projector)
    known = torch.tensor(
        sorted({t for one in pictures(Random(0), 2000)[0] for t in _spelled(one, coder)})
    )
    words, blank = embed[known] / scale, int(torch.searchsorted(known, _blank(coder)))
    rng, began, step, recent = Random(seed), time.process_time(), 0, []
    while (share := (time.process_time() - began) / (60 * minutes)) < 1:
        for optimizer, rate in zip(optimizers, rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate * min(
                1, (step + 1) / 50, max(0.02, 1.6 * (1 - share))
            )
        scenes, seen = pictures(rng, 64)
        goal = torch.searchsorted(known, torch.tensor([_spelled(one, coder) for one in scenes]))
        made = projector(tower(seen))
        near = torch.cdist(made.flatten(0, 1), words).square() / words.shape[1]
        weight = torch.where(goal == blank, 0.1, 1.0).flatten()
        each = functional.cross_entropy(-_SHARP * near, goal.flatten(), reduction="none")
        each = each + near.gather(1, goal.view(-1, 1))[:, 0]
        loss = (each * weight).sum() / weight.sum()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        same = (near.argmin(1).view_as(goal) == goal)[goal != blank].float().mean()
        recent.append((loss.item(), same.item()))
        step += 1
        if step % 50 == 0:
            log("step {}: loss {:.3f}, right tokens {:.3f}".format(step, *np.mean(recent, axis=0)))
            recent = []
            _save_rows(tower, projector, scale, folder)
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


def begin(target: Path, folder: Path) -> Seeing:
    """The embedded target, and what `spell` made."""
    model = load(target)
    found = Seeing(model, Tower(), Projector(model.shape.width))
    for name, state in torch.load(folder / "rows.pt", weights_only=True).items():
        getattr(found, name).load_state_dict(state)
    return found


def talk_about(
    seeing: Seeing, teacher: Teacher, own: Iterator[Batch], minutes: float, folder: Path, log: Log
) -> None:
    """Train in place for minutes of processor time: lessons about pictures, and the demo's own
    corpus without pictures, on which the target is to stay as it was.
    """
    before = copy.deepcopy(seeing.model)
    parts = (seeing.model, seeing.tower, seeing.projector)
    for part in parts:
        part.requires_grad_(requires_grad=True)
    groups = [
        {"params": list(part.parameters()), "lr": rate}
        for part, rate in zip(parts, _RATES, strict=True)
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0)
    began, step, recent = time.process_time(), 0, []
    while (share := (time.process_time() - began) / (60 * minutes)) < 1:
        for group, rate in zip(optimizer.param_groups, _RATES, strict=True):
            group["lr"] = rate * min(1, (step + 1) / 20, max(0.03, 1.5 * (1 - share)))
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
        torch.nn.utils.clip_grad_norm_(
            [p for g in optimizer.param_groups for p in g["params"]], 1.0
        )
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent.append((loss.item(), right.item(), kept.item()))
        step += 1
        if step % 20 == 0:
            mean = np.mean(recent, axis=0)
            log(
                f"step {step}: loss {mean[0]:.3f}, right tokens {mean[1]:.3f}, from the demo {mean[2]:.4f}"
            )
            recent = []
            seeing.save(folder)
    seeing.save(folder)
    log(f"{step * _TALKS} conversations")


def read(target: Path, folder: Path) -> Seeing:
    """What `talk_about` made."""
    model = load(target)
    found = Seeing(model, Tower(), Projector(model.shape.width))
    for name, state in torch.load(folder / "seeing.pt", weights_only=True).items():
        getattr(found, name).load_state_dict(state)
    return found


def distill(draft: Path, teacher: Teacher, minutes: float, folder: Path, log: Log) -> None:
    """Train the embedded draft on what the target says about pictures; it reads the text alone."""
    seeing, model = read(draft.with_name("target.gguf"), folder), load(draft)
    model.requires_grad_(requires_grad=True)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.0)
    began, step, recent = time.process_time(), 0, []
    while (share := (time.process_time() - began) / (60 * minutes)) < 1:
        optimizer.param_groups[0]["lr"] = 1e-3 * min(
            1, (step + 1) / 20, max(0.03, 1.5 * (1 - share))
        )
        lessons = teacher.lessons(_TALKS)
        tokens, judged = lessons.blind
        with arithmetic():
            with torch.no_grad():
                goal = seeing.logits(lessons, True)
            logits = model(tokens)[judged]
        loss = distance(logits, goal, torch.ones(len(goal)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        same = (logits.argmax(-1) == goal.argmax(-1)).float().mean()
        recent.append((loss.item(), same.item()))
        step += 1
        if step % 20 == 0:
            log(
                "step {}: distance {:.3f}, same choice {:.3f}".format(
                    step, *np.mean(recent, axis=0)
                )
            )
            recent = []
            torch.save(model.state_dict(), folder / "draft.pt")
    torch.save(model.state_dict(), folder / "draft.pt")


def read_draft(draft: Path, folder: Path) -> Model:
    """What `distill` made."""
    model = load(draft)
    model.load_state_dict(torch.load(folder / "draft.pt", weights_only=True))
    return model
