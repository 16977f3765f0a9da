"""The stages of `scripts/train_demo`, each a function of the command's arguments."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from . import tokenizer as tok
from .batches import Batch, Diet, batches
from .copying import Quotes
from .corpus import HeldOut, conversations, docstring_sentences

Log = Callable[[str], None]


def _held(args: Namespace) -> HeldOut:
    return HeldOut(args.data / "heldout.json")


def tokenizer(args: Namespace, log: Log) -> None:
    """Learn the vocabulary from 60,000 conversations."""
    source = conversations(args.seed, _held(args), Quotes(docstring_sentences()))
    texts = [content for _ in range(60_000) for _, content in next(source)[1]]
    texts += [f"{role}\n" for role in ("system", "user", "assistant")] * 2000
    args.data.mkdir(parents=True, exist_ok=True)
    made = tok.train(texts)
    made.save(str(args.data / "tokenizer.json"))
    log(f"{made.get_vocab_size()} tokens from {sum(map(len, texts))} characters")


# Many copying drills first: on them a small model learns to look back. Long talks come last.
DIETS = (
    Diet(rows=16, length=256, chain=0.15, most=3, drills=0.7),
    Diet(rows=16, length=256, chain=0.2, most=3, drills=0.06),
    Diet(rows=5, length=768, chain=0.8, most=10, drills=0.05),
)


def _stream(args: Namespace, part: int = 1) -> Callable[[int, int], Iterator[Batch]]:
    """`part` 2 halves the batches: a smaller model gains more from more steps."""
    coder, held = tok.load(args.data / "tokenizer.json"), _held(args)
    quotes = Quotes(docstring_sentences())
    diets = [replace(diet, rows=diet.rows // part) for diet in DIETS]
    return lambda seed, phase: batches(coder, held, quotes, seed, diets[phase])


def _threads(args: Namespace) -> None:
    import torch

    if args.threads:
        torch.set_num_threads(args.threads)


def target(args: Namespace, log: Log) -> None:
    from .training import TARGET, Plan, Trainer

    _threads(args)
    trainer = Trainer(
        TARGET, Plan(args.minutes or 90, args.max_steps), args.work / "target", args.seed
    )
    resumed = trainer.resume()
    log(
        f"target: {trainer.model.size()} parameters{', resumed at step ' + str(trainer.step) if resumed else ''}"
    )
    trainer.run(_stream(args), log)
    log(f"{trainer.tokens} tokens in {trainer.step} steps, {trainer.seconds / 60:.1f} minutes")


def draft(args: Namespace, log: Log) -> None:
    """The draft learns the distributions of the target, rounded to 4 bits as it will be used."""
    from .training import DRAFT, Plan, Trainer, load

    _threads(args)
    plan = Plan(args.minutes or 15, args.max_steps, quant_from=2.0, phases=(0.0, 0.35, 0.92))
    trainer = Trainer(DRAFT, plan, args.work / "draft", args.seed + 1, load(args.work / "target"))
    resumed = trainer.resume()
    log(
        f"draft: {trainer.model.size()} parameters{', resumed at step ' + str(trainer.step) if resumed else ''}"
    )
    trainer.run(_stream(args, part=2), log)
    log(f"{trainer.tokens} tokens in {trainer.step} steps, {trainer.seconds / 60:.1f} minutes")


def export(args: Namespace, log: Log) -> None:
    from .export import export_pair

    export_pair(args.work, args.data / "tokenizer.json", args.out, log)


def check(args: Namespace, log: Log) -> None:
    from .evaluation import check_files

    check_files(args.work, args.data / "tokenizer.json", args.out, log)


def answers(args: Namespace, log: Log) -> None:
    from .evaluation import answer_all

    path: Path = args.data / "heldout.json"
    answer_all(args.out, path, args.work / "answers.json", log)


def judged(args: Namespace, log: Log) -> None:
    from .judged import write

    data: Path = args.data
    scores = write(args.work / "answers.json", data / "verdicts.json", data / "judged.md")
    for kind, (good, total) in scores.items():
        log(f"{kind:12} {good} of {total}")
