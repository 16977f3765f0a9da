"""Acceptance of a head's drafts by position, counted in PyTorch on the target's own replies.

The target's replies, written by llama.cpp, judge the drafts: a draft is followed only where it
equals the reply. At temperature 1 every chain is weighted by the probability that its earlier
positions were accepted, min(1, q / p) each (Leviathan et al. 2023, section 2.2, where sum min(p,
q) is the acceptance of one position).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from demo import tokenizer as tok
from demo.model import Model, norm
from demo.runtime import END, Runner, greedy, probabilities
from torch import Tensor, nn
from torch.nn import functional

from heads.frozen import Seen, look
from heads.training import STEPS

Drafter = Callable[[Seen, Tensor], list[Tensor]]
"""From one text and the rows (R,) asked for: logits (R, V) of each step."""
_LONGEST = 768


@dataclass(frozen=True)
class Reply:
    """One reply of the target to a held-out prompt."""

    kind: str
    ids: list[int]
    start: int
    """Index of the reply's first token."""
    greedy: bool
    """Temperature 0, otherwise 1."""


@dataclass
class Places:
    """Sums over chains, by position."""

    reached: np.ndarray = field(default_factory=lambda: np.zeros(STEPS))
    """Weight of the chains that got there."""
    kept: np.ndarray = field(default_factory=lambda: np.zeros(STEPS))

    def add(self, other: Places) -> None:
        self.reached += other.reached
        self.kept += other.kept

    def rates(self) -> np.ndarray:
        """Acceptance of each position, given that the earlier ones were accepted."""
        return self.kept / np.maximum(self.reached, 1e-9)

    def tokens(self) -> float:
        """Tokens per round with `STEPS` drafted."""
        return 1 + float(np.cumprod(self.rates()).sum())


def replies(target: Path, heldout: Path) -> Iterator[Reply]:
    """Replies at both temperatures to every held-out prompt, earlier turns answered greedily."""
    runner = Runner(target)
    for number, entry in enumerate(json.loads(heldout.read_text(encoding="utf-8"))):
        talk: list[tuple[str, str]] = []
        for message in entry["messages"]:
            talk.append((message["role"], message["content"]))
            if message["role"] != "user":
                continue
            prompt = runner.tokenize(tok.render(talk, open_reply=True))
            plain = greedy(runner, prompt)
            yield Reply(entry["kind"], [*prompt, *plain, END], len(prompt), greedy=True)
            drawn = sampled(runner, prompt, number)
            yield Reply(entry["kind"], [*prompt, *drawn, END], len(prompt), greedy=False)
            talk.append(("assistant", runner.text(plain)))


def sampled(runner: Runner, prompt: list[int], seed: int, limit: int = 400) -> list[int]:
    """A reply at temperature 1, nothing cut off, without its end token."""
    rng = np.random.default_rng(seed)
    row, reply = runner.follow(prompt), []
    while len(reply) < limit:
        p = probabilities(row)
        token = int(rng.choice(len(p), p=p))
        if token == END:
            break
        reply.append(token)
        row = runner.feed([token])[0]
    return reply


def of_head(head: nn.Module) -> Drafter:
    """Drafts of a head."""

    def draft(seen: Seen, rows: Tensor) -> list[Tensor]:
        states = head(seen, STEPS)
        return [
            functional.linear(state[0, rows], head.matrix(n)) for n, state in enumerate(states, 1)
        ]

    return draft


def of_model(model: Model) -> Drafter:
    """Drafts of a draft model, which depend on the text alone."""

    def draft(seen: Seen, rows: Tensor) -> list[Tensor]:
        state = norm(model.stream(seen.tokens)[-1], model.norm)
        return [model.head(state[0, rows])] * STEPS

    return draft


def judge(told: Tensor, p: Tensor, drafts: list[Tensor], *, greedily: bool) -> Places:
    """Acceptance of the chains that begin at each token of a reply.

    Args:
        told: the reply's tokens (R,).
        p: the target's distributions there (R, V).
        drafts: logits (R, V) of each step.
        greedily: at temperature 0, otherwise 1.
    """
    found = Places()
    chains = len(told) - STEPS + 1
    weight = np.ones(max(0, chains))
    each = torch.arange(len(told))
    for step, logits in enumerate(drafts):
        if greedily:
            kept = follow = (logits.argmax(-1) == told).double()
        else:
            q = logits.softmax(-1)
            kept = torch.minimum(p, q).sum(-1).double()
            follow = (q[each, told] / p[each, told]).clamp(max=1).double()
        here = slice(step, step + len(weight))
        found.reached[step] += weight.sum()
        found.kept[step] += (weight * kept[here].numpy()).sum()
        weight = weight * follow[here].numpy()
    return found


@torch.no_grad()
def measure(
    texts: list[Reply], target: Model, drafters: dict[str, Drafter], log: Callable[[str], None]
) -> None:
    """Log a table for each drafter: acceptance and tokens per round, by kind of prompt."""
    sums: dict[tuple[str, str, bool], Places] = defaultdict(Places)
    for reply in texts:
        tokens = torch.tensor([reply.ids[:_LONGEST]])
        rows = torch.arange(reply.start - 1, tokens.shape[1] - 1)
        if len(rows) < STEPS:
            continue
        seen = look(target, tokens, torch.ones_like(tokens))
        p, told = target.head(seen.hidden[0, rows]).softmax(-1), tokens[0, rows + 1]
        for name, drafter in drafters.items():
            places = judge(told, p, drafter(seen, rows), greedily=reply.greedy)
            for kind in (reply.kind, "all"):
                sums[name, kind, reply.greedy].add(places)
    for name in drafters:
        log(f"| {name} | T = 0, by position | tokens | T = 1, by position | tokens |")
        for kind in dict.fromkeys(kind for _, kind, _ in sums):
            both = [sums[name, kind, greedily] for greedily in (True, False)]
            log(f"| {kind} | {' | '.join(f'{_cell(x)} | {x.tokens():.2f}' for x in both)} |")


def _cell(places: Places) -> str:
    return " ".join(f"{rate:.2f}" for rate in places.rates())
