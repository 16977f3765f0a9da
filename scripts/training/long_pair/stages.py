"""A pair that speaks long: the embedded pair, which learns prompts with known replies of 256 tokens
and more. Two cores need about five minutes.

It writes target.gguf, draft.gguf and prompts.json, which `scripts/bench peers --prompts` reads.
`scripts/bench make_pair --target OUT/target.gguf --draft OUT/draft.gguf` makes them as costly as
large models.
"""

from __future__ import annotations

import json
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

from demo.stages import DATA, DEMO, ROOT, Log

STAGES = ("train",)
MORE = ()


def arguments(p: ArgumentParser) -> None:
    p.add_argument("--out", type=Path, default=ROOT / "build/long-pair")
    p.add_argument("--each", type=int, default=3, help="texts of every kind")
    p.add_argument("--turns", type=int, default=80, help="turns of the target over all texts")
    p.add_argument("--draft-turns", type=int, default=9, help="the same of the draft")


def train(args: Namespace, log: Log) -> None:
    import llama_cpp  # noqa: F401 - used after the training: let its absence show before
    import torch
    from demo import tokenizer as tok
    from demo.export import export_pair
    from heads.frozen import load

    from long_pair.reciting import known, learn, lesson

    args.out.mkdir(parents=True, exist_ok=True)
    coder = tok.load(DATA / "tokenizer.json")
    found = known(args.each, coder)
    lessons = [lesson(text, coder) for some in found.values() for text in some]
    log(f"{len(lessons)} texts, {sum(len(one.ids) for one in lessons)} tokens")
    prompts = {kind: [text.prompt for text in some] for kind, some in found.items()}
    (args.out / "prompts.json").write_text(json.dumps(prompts, indent=1) + "\n")
    target, draft = load(DEMO / "target.gguf"), load(DEMO / "draft.gguf")
    torch.manual_seed(args.seed)
    learn(target, lessons, args.turns, 1e-3, log, quant=True, enough=0.03)
    turns = args.draft_turns
    learn(draft, lessons, turns, 2e-3, log, teacher=target, quant=False, enough=0.0)
    models = {"target": target, "draft": draft}
    with tempfile.TemporaryDirectory() as plain:
        export_pair(models, DATA / "tokenizer.json", args.out, log, Path(plain))
