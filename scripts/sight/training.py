"""Training the encoder: first to name what it sees, then to make the frozen target say it."""

import argparse
import math
import time
from collections.abc import Iterator

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from .encoder import ROWS, WIDE, Encoder, write
from .pictures import COLOURS, PLACES, SHAPES, Scene, asked, draw, scene
from .target import Frozen

BEFORE, AFTER = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"


class Pool:
    """Drawn pictures, and their scenes."""

    def __init__(self, numbers: range) -> None:
        self.scenes = [scene(n) for n in numbers]
        drawn = [np.asarray(draw(s, n)) for s, n in zip(self.scenes, numbers, strict=True)]
        self.pixels = torch.tensor(np.stack(drawn)).permute(0, 3, 1, 2)

    def batch(self, rng: np.random.Generator, size: int) -> tuple[list[Scene], Tensor]:
        """Some of them; pixels in -1 to 1, shifted and a little noisy."""
        chosen = rng.integers(len(self.scenes), size=size)
        pixels = self.pixels[torch.tensor(chosen)].float() / 127.5 - 1
        pixels = torch.roll(pixels, tuple(int(n) for n in rng.integers(-2, 3, 2)), (2, 3))
        pixels = pixels + 0.02 * torch.randn_like(pixels)
        return [self.scenes[i] for i in chosen], pixels


class Names(nn.Module):
    """Classifiers of the mean of all rows."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (len(SHAPES) + 1, len(COLOURS), 5, len(PLACES) + 1, 11)
        self.heads = nn.ModuleList(nn.Linear(WIDE, n) for n in sizes)

    def loss(self, seen: Tensor, scenes: list[Scene]) -> tuple[Tensor, float]:
        """The sum over all questions, and the share of pictures of which all is right."""
        places = [s.place + 1 if s.count == 1 else 0 for s in scenes]
        wanted = [
            [s.shape + 1 for s in scenes],
            [s.colour for s in scenes],
            [s.count for s in scenes],
            places,
            [s.digit + 1 for s in scenes],
        ]
        mean, total, right = seen.mean(1), torch.zeros(()), torch.ones(len(scenes)).bool()
        for head, labels in zip(self.heads, wanted, strict=True):
            goal, made = torch.tensor(labels), head(mean)
            total = total + functional.cross_entropy(made, goal)
            right &= made.argmax(-1) == goal
        return total, right.float().mean().item()


def paced(steps: Iterator[None], seconds: float) -> Iterator[float]:
    """The share of the processor's time that is over, before each step."""
    began = time.process_time()
    for _ in steps:
        spent = time.process_time() - began
        if spent >= seconds:
            return
        yield spent / seconds


def forever() -> Iterator[None]:
    while True:
        yield None


def train(args: argparse.Namespace) -> None:
    """All of it; prints how far it is."""
    torch.manual_seed(args.seed)
    rng, frozen = np.random.default_rng(args.seed), Frozen(args.target)
    pool, encoder = (
        Pool(range(2 * args.seed * args.pool, 2 * (args.seed + 1) * args.pool, 2)),
        Encoder(frozen.width),
    )
    if args.resume and args.resume.exists():
        encoder.load_state_dict(torch.load(args.resume))
    size = sum(p.numel() for p in encoder.parameters())
    print(f"{size} parameters, {len(pool.scenes)} pictures", flush=True)
    learn_names(encoder, pool, rng, 60 * args.naming_minutes)
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    optimizer = torch.optim.AdamW(encoder.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    for i, share in enumerate(paced(forever(), 60 * args.answering_minutes)):
        pace(optimizer, i, share, 1e-3)
        scenes, pixels = pool.batch(rng, 16)
        loss = answering(encoder, frozen, tokenizer, scenes, pixels, rng)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        if i % 25 == 0:
            print(f"answering {i}: loss {loss.item():.3f}", flush=True)
        if i % 100 == 99:
            save(encoder, args)
    save(encoder, args)
    print(f"{args.out}: {args.out.stat().st_size} bytes")


def save(encoder: Encoder, args: argparse.Namespace) -> None:
    """The file, and the checkpoint."""
    write(encoder, args.out, args.target)
    if args.resume:
        torch.save(encoder.state_dict(), args.resume)


def pace(optimizer: torch.optim.Optimizer, step: int, share: float, rate: float) -> None:
    """Warm up, then a cosine down to almost nothing."""
    for group in optimizer.param_groups:
        group["lr"] = rate * min(1, step / 20) * (0.5 + 0.5 * math.cos(math.pi * share)) + 1e-5


def learn_names(encoder: Encoder, pool: Pool, rng: np.random.Generator, seconds: float) -> None:
    """Teach the encoder to see, by classifiers that are thrown away."""
    names = Names()
    both = [*encoder.parameters(), *names.parameters()]
    optimizer = torch.optim.AdamW(both, weight_decay=0.02)
    for i, share in enumerate(paced(forever(), seconds)):
        pace(optimizer, i, share, 1.5e-3)
        scenes, pixels = pool.batch(rng, 64)
        loss, right = names.loss(encoder.seen(pixels), scenes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 100 == 0:
            print(f"naming {i}: loss {loss.item():.3f}, all right {right:.2f}", flush=True)


def answering(
    encoder: Encoder,
    frozen: Frozen,
    tokenizer: Tokenizer,
    scenes: list[Scene],
    pixels: Tensor,
    rng: np.random.Generator,
) -> Tensor:
    """The loss of the target's answers to questions about pictures."""
    before = tokenizer.encode(BEFORE, add_special_tokens=False).ids
    both = [asked(s, rng) for s in scenes]
    asks = [tokenizer.encode(f"\n{q}{AFTER}", add_special_tokens=False).ids for q, _ in both]
    says = [tokenizer.encode(f"{a}<|im_end|>", add_special_tokens=False).ids for _, a in both]
    length = max(len(q) + len(a) for q, a in zip(asks, says, strict=True))
    ids = torch.zeros(len(scenes), length, dtype=torch.long)
    weights = torch.zeros(len(scenes), length)
    for i, (q, a) in enumerate(zip(asks, says, strict=True)):
        ids[i, : len(q) + len(a)] = torch.tensor([*q, *a])
        weights[i, len(q) : len(q) + len(a)] = 1
    start = frozen.embed[torch.tensor(before)].expand(len(scenes), -1, -1)
    x = torch.cat((start, encoder(pixels), frozen.embed[ids]), 1)
    made = frozen.logits(x)[:, len(before) + ROWS - 1 : -1]
    loss = functional.cross_entropy(made.flatten(0, 1), ids.flatten(), reduction="none")
    return (loss * weights.flatten()).sum() / weights.sum()
