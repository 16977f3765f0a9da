"""The stages of `scripts/train_eye`, each a function of the command's arguments."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[3]
DEMO, DATA = ROOT / "localspec" / "demo", ROOT / "tests" / "data" / "demo"
Log = Callable[[str], None]


def _threads(args: Namespace) -> None:
    import torch

    torch.manual_seed(args.seed)
    if args.threads:
        torch.set_num_threads(args.threads)


def look(args: Namespace, log: Log) -> None:
    from .training import look as train

    _threads(args)
    train(args.minutes or 13, args.seed, args.work, log)


def spell(args: Namespace, log: Log) -> None:
    from demo import tokenizer as tok

    from .training import spell as train

    _threads(args)
    coder = tok.load(DATA / "tokenizer.json")
    train(DEMO / "target.gguf", coder, args.minutes or 3, args.seed, args.work, log)


def talk(args: Namespace, log: Log) -> None:
    from demo import tokenizer as tok
    from demo.batches import Diet, batches
    from demo.copying import Quotes
    from demo.corpus import HeldOut, docstring_sentences

    from .lessons import Teacher
    from .training import begin, talk_about

    _threads(args)
    coder, held = tok.load(DATA / "tokenizer.json"), HeldOut(DATA / "heldout.json")
    diet = Diet(rows=3, length=256, chain=0.2, most=3, drills=0.05)
    own = batches(coder, held, Quotes(docstring_sentences()), args.seed, diet)
    teacher = Teacher(coder, held, Random(args.seed))
    seeing = begin(DEMO / "target.gguf", args.work)
    talk_about(seeing, teacher, own, args.minutes or 20, args.work, log)


def draft(args: Namespace, log: Log) -> None:
    from demo import tokenizer as tok
    from demo.corpus import HeldOut

    from .lessons import Teacher
    from .training import distill

    _threads(args)
    coder, held = tok.load(DATA / "tokenizer.json"), HeldOut(DATA / "heldout.json")
    teacher = Teacher(coder, held, Random(args.seed + 1), own=0.4)
    distill(DEMO / "draft.gguf", teacher, args.minutes or 5, args.work, log)


def export(args: Namespace, log: Log) -> None:
    from demo.export import quantize, write_f16

    from .tower import write
    from .training import read, read_draft

    args.out.mkdir(parents=True, exist_ok=True)
    seeing = read(DEMO / "target.gguf", args.work)
    path = args.out / "mmproj.gguf"
    write(seeing.tower, seeing.projector, path)
    log(f"{path.name}: {path.stat().st_size} bytes")
    made = {
        "target": (seeing.model, "Q4_0"),
        "draft": (read_draft(DEMO / "draft.gguf", args.work), "Q8_0"),
    }
    for name, (model, kind) in made.items():
        plain = args.work / f"{name}-f16.gguf"
        write_f16(model, DATA / "tokenizer.json", plain, f"{name} of demo-sees")
        quantize(plain, args.out / f"{name}.gguf", kind, log)


def check(args: Namespace, log: Log) -> None:
    from localspec import Options

    from .trying import LENGTH, beside_a_picture, examine

    out = args.out
    options = Options(
        model=str(out / "target.gguf"), draft=str(out / "draft.gguf"), mmproj=str(out / "mmproj.gguf"),
        drafter=("model",), draft_max=LENGTH, remember=False,
    )  # fmt: skip
    examine(options, args.pictures, args.work / "wrong.json", log)
    beside_a_picture(options, DATA / "heldout.json", log)
