"""Checks of the exported files: their tokens, and their logits beside PyTorch's."""

from pathlib import Path
from random import Random

import llama_cpp
import numpy as np
import torch

from . import tokenizer as tok
from .copying import Quotes
from .corpus import HeldOut, conversations, docstring_sentences
from .loop import Log
from .model import Model
from .training import load
from .words import TEXTS


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
    coder = tok.load(tokenizer)
    model = llama_cpp.Llama(str(gguf), vocab_only=True, verbose=False)
    texts = samples(1000)
    ids = [coder.encode(t).ids for t in texts]
    got = [model.tokenize(t.encode(), add_bos=False, special=True) for t in texts]
    wrong = sum(a != b for a, b in zip(got, ids, strict=True))
    back = [model.detokenize(i, special=True).decode("utf-8", "replace") for i in ids]
    same = sum(a == b for a, b in zip(back, texts, strict=True))
    log(
        f"{gguf.name}: tokenization differs on {wrong} of {len(texts)} samples "
        f"({sum(map(len, ids))} tokens), {same} come back as they were"
    )


def check_logits(model: Model, tokenizer: Path, gguf: Path, log: Log, positions: int = 100) -> None:
    coder = tok.load(tokenizer)
    source = conversations(7, HeldOut(Path("nowhere")), Quotes(docstring_sentences()))
    ids: list[int] = []
    while len(ids) < positions:
        ids += coder.encode(tok.render(next(source)[1])).ids
    ids = ids[:positions]
    exact = dict.fromkeys(("type_k", "type_v"), llama_cpp.GGML_TYPE_F32)
    runner = llama_cpp.Llama(str(gguf), n_ctx=512, logits_all=True, verbose=False, **exact)
    for one in ids:
        runner.eval([one])
    got = runner.scores[:positions]
    with torch.no_grad():
        plain = model(torch.tensor([ids]))[0].numpy()
    gap = np.abs(got - plain)
    log(
        f"{gguf.name}: against PyTorch over {positions} positions: largest logit difference "
        f"{gap.max():.4f}, mean {gap.mean():.5f}, 99.9 % below {np.quantile(gap, 0.999):.4f}, "
        f"same argmax {(got.argmax(1) == plain.argmax(1)).mean():.3f}"
    )


def check_files(work: Path, tokenizer: Path, out: Path, log: Log) -> None:
    for name in ("target", "draft"):
        check_tokens(tokenizer, out / f"{name}.gguf", log)
        check_logits(load(work / name), tokenizer, work / f"{name}-f16.gguf", log)
        log(f"{name}.gguf: {(out / f'{name}.gguf').stat().st_size} bytes")
