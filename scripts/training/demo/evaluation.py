"""Checks of the exported files, the answers to the held-out prompts, and acceptance on them."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import torch

from . import tokenizer as tok
from .copying import Quotes
from .corpus import HeldOut, conversations, docstring_sentences
from .model import Linear, Model
from .runtime import Count, Runner, Speculation, greedy
from .training import load
from .words import TEXTS

Log = Callable[[str], None]


def samples(count: int, seed: int = 99) -> list[str]:
    """Renderings of fresh conversations, cut anywhere, and a share of hostile strings."""
    rng = Random(seed)
    source = conversations(seed, HeldOut(Path("nowhere")), Quotes(docstring_sentences()))
    found = []
    while len(found) < count * 17 // 20:
        text = tok.render(next(source)[1])
        start = rng.randrange(len(text))
        found.append(text[start : start + rng.randint(1, 400)])
    while len(found) < count:
        found.append("".join(rng.choices(TEXTS["about"]["odd"], k=rng.randint(1, 4))))
    return found


def check_tokens(tokenizer: Path, gguf: Path, log: Log) -> None:
    coder, runner = tok.load(tokenizer), Runner(gguf, 64)
    texts = samples(1000)
    ids = [coder.encode(t).ids for t in texts]
    wrong = sum(runner.tokenize(t) != i for t, i in zip(texts, ids, strict=True))
    back = sum(runner.text(i, special=True) == t for t, i in zip(texts, ids, strict=True))
    log(
        f"{gguf.name}: tokenization differs on {wrong} of {len(texts)} samples ({sum(map(len, ids))} tokens), {back} come back as they were"
    )


def check_logits(model: Model, tokenizer: Path, gguf: Path, log: Log, positions: int = 100) -> None:
    coder = tok.load(tokenizer)
    source = conversations(7, HeldOut(Path("nowhere")), Quotes(docstring_sentences()))
    ids: list[int] = []
    while len(ids) < positions:
        ids += coder.encode(tok.render(next(source)[1])).ids
    ids = ids[:positions]
    runner = Runner(gguf, 512, exact_cache=True)
    got = np.concatenate([runner.feed([i]) for i in ids])
    with torch.no_grad():
        plain = model(torch.tensor([ids]))[0].numpy()
        for p in model.parameters():
            if p.ndim == 2:
                p.copy_(p.half().float())
        weights = model(torch.tensor([ids]))[0].numpy()
        # llama.cpp also rounds what it multiplies with F16 weights.
        for module in model.modules():
            if isinstance(module, Linear):
                module.register_forward_pre_hook(lambda _, a: (a[0].half().float(), a[1]))
        exact_head = model.head
        model.head = lambda x: exact_head(x.half().float())  # type: ignore[method-assign]
        both = model(torch.tensor([ids]))[0].numpy()
    for name, want in (
        ("PyTorch", plain),
        ("PyTorch with weights rounded to F16", weights),
        ("PyTorch with weights and inputs rounded to F16", both),
    ):
        gap = np.abs(got - want)
        log(
            f"{gguf.name}: against {name} over {positions} positions: largest logit difference "
            f"{gap.max():.4f}, mean {gap.mean():.5f}, 99.9 % below {np.quantile(gap, 0.999):.4f}, "
            f"same argmax {(got.argmax(1) == want.argmax(1)).mean():.3f}"
        )


def check_files(work: Path, tokenizer: Path, out: Path, log: Log) -> None:
    for name in ("target", "draft"):
        check_tokens(tokenizer, out / f"{name}.gguf", log)
        check_logits(load(work / name), tokenizer, work / f"{name}-f16.gguf", log)
        log(f"{name}.gguf: {(out / f'{name}.gguf').stat().st_size} bytes")


def answer_all(out: Path, heldout: Path, goal: Path, log: Log, k: int = 4) -> None:
    """Greedy answers of the quantized target to every held-out prompt, and acceptance of the pair there."""
    target, draft = Runner(out / "target.gguf"), Runner(out / "draft.gguf")
    counts: dict[str, dict[str, Count]] = defaultdict(lambda: defaultdict(Count))
    same = total = 0
    found = []
    for number, entry in enumerate(json.loads(heldout.read_text(encoding="utf-8"))):
        talk: list[tuple[str, str]] = []
        for message in entry["messages"]:
            talk.append((message["role"], message["content"]))
            if message["role"] != "user":
                continue
            prompt = target.tokenize(tok.render(talk, open_reply=True))
            plain = greedy(target, prompt)
            for mode in ("greedy", "rejection", "coupled"):
                run = Speculation(target, draft, mode, seed=number + 1, k=k)
                text = run.reply(prompt)
                counts[entry["kind"]][mode].add(run.count)
                if mode == "greedy":
                    same += text == plain[: len(text)]
                    total += 1
            talk.append(("assistant", target.text(plain)))
        found.append({"kind": entry["kind"], "expect": entry.get("expect", ""), "talk": talk})
    goal.parent.mkdir(parents=True, exist_ok=True)
    goal.write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")
    everything: dict[str, Count] = defaultdict(Count)
    log(
        f"{'kind':12} temperature 0 | rejection at 1 | coupled at 1   (accepted/verified, accepted/drafted, tokens per round)"
    )
    for kind, modes in counts.items():
        log(f"{kind:12} " + " | ".join(_figures(c) for c in modes.values()))
        for mode, count in modes.items():
            everything[mode].add(count)
    log(f"{'all':12} " + " | ".join(_figures(c) for c in everything.values()))
    log(f"speculation at temperature 0 gave the plain text on {same} of {total} replies")


def _figures(c: Count) -> str:
    return f"{c.acceptance:.2f} {c.accepted / max(1, c.drafted):.2f} {c.emitted / max(1, c.rounds):.2f}"
