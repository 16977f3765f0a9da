"""The embedded demonstration pair: tokenizer, target, draft, export, check.

Everything runs on a processor: two cores need about two hours. A training stage that was stopped
continues where it last saved.

A budget in minutes gives other weights on every machine; --max-steps gives the same steps everywhere
(the committed pair had 4,800 for the target), though threads and processors still round differently.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .batches import Batch, Diet

Log = Callable[[str], None]
ROOT = Path(__file__).resolve().parents[3]
DEMO, DATA = ROOT / "localspec/demo", ROOT / "tests/data/demo"
STAGES = ("tokenizer", "target", "draft", "export", "check")
MORE = ()


def common(p: ArgumentParser, name: str, minutes: float | None = None) -> None:
    """Arguments that several trainings have."""
    p.add_argument("--work", type=Path, default=ROOT / "build" / name, help="checkpoints")
    p.add_argument("--data", type=Path, default=DATA, help="tokenizer and held-out prompts")
    p.add_argument("--minutes", type=float, default=minutes, help="budget of a stage")
    p.add_argument("--max-steps", type=int, help="a budget of steps instead: the same on every run")


def arguments(p: ArgumentParser) -> None:
    p.add_argument("--out", type=Path, default=DEMO, help="where the two GGUF files go")
    common(p, "demo")


def tokenizer(args: Namespace, log: Log) -> None:
    """Learn the vocabulary from 60,000 conversations."""
    from . import tokenizer as tok
    from .copying import Quotes
    from .corpus import HeldOut, conversations, docstring_sentences

    held = HeldOut(args.data / "heldout.json")
    source = conversations(args.seed, held, Quotes(docstring_sentences()))
    texts = [content for _ in range(60_000) for _, content in next(source)[1]]
    texts += [f"{role}\n" for role in ("system", "user", "assistant")] * 2000
    args.data.mkdir(parents=True, exist_ok=True)
    made = tok.train(texts)
    made.save(str(args.data / "tokenizer.json"))
    log(f"{made.get_vocab_size()} tokens from {sum(map(len, texts))} characters")


def stream(data: Path, diets: Sequence["Diet"]) -> Callable[[int, int], Iterator["Batch"]]:
    """Batches of the corpus for a seed and one of the diets."""
    from . import tokenizer as tok
    from .batches import batches
    from .copying import Quotes
    from .corpus import HeldOut, docstring_sentences

    coder, held = tok.load(data / "tokenizer.json"), HeldOut(data / "heldout.json")
    quotes = Quotes(docstring_sentences())
    return lambda seed, phase: batches(coder, held, quotes, seed, diets[phase])


def _diets(part: int = 1) -> list["Diet"]:
    """Many copying drills first: on them a small model learns to look back. Long talks come last.
    `part` 2 halves the batches: a smaller model gains more from more steps.
    """
    from .batches import Diet

    whole = (
        Diet(rows=16, length=256, chain=0.15, most=3, drills=0.7),
        Diet(rows=16, length=256, chain=0.2, most=3, drills=0.06),
        Diet(rows=5, length=768, chain=0.8, most=10, drills=0.05),
    )
    return [replace(diet, rows=diet.rows // part) for diet in whole]


def target(args: Namespace, log: Log) -> None:
    from .training import TARGET, Plan, Trainer

    plan = Plan(args.minutes or 90, args.max_steps)
    Trainer(TARGET, plan, args.work / "target", args.seed).run(stream(args.data, _diets()), log)


def draft(args: Namespace, log: Log) -> None:
    """The draft learns the distributions of the target, rounded to 4 bits as it will be used."""
    from .training import DRAFT, Plan, Trainer, load

    plan = Plan(args.minutes or 15, args.max_steps, quant_from=2.0, phases=(0.0, 0.35, 0.92))
    teacher = load(args.work / "target")
    trainer = Trainer(DRAFT, plan, args.work / "draft", args.seed + 1, teacher)
    trainer.run(stream(args.data, _diets(2)), log)


def export(args: Namespace, log: Log) -> None:
    from .export import export_pair
    from .training import load

    models = {name: load(args.work / name) for name in ("target", "draft")}
    export_pair(models, args.data / "tokenizer.json", args.out, log, plain=args.work)


def check(args: Namespace, log: Log) -> None:
    from .evaluation import check_files

    check_files(args.work, args.data / "tokenizer.json", args.out, log)
