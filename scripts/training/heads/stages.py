"""The stages of `scripts/train_heads`, each a function of the command's arguments."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

Log = Callable[[str], None]


def eagle3(args: Namespace, log: Log) -> None:
    _train("eagle3", args, log)


def mtp(args: Namespace, log: Log) -> None:
    _train("mtp", args, log)


def medusa(args: Namespace, log: Log) -> None:
    _train("medusa", args, log)


def _train(name: str, args: Namespace, log: Log) -> None:
    import torch

    from heads import frozen
    from heads.models import HEADS
    from heads.training import Plan, Run

    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    target = frozen.load(args.target)
    head = HEADS[name](target)
    path = args.work / f"{name}.pt"
    again = args.resume and path.exists()
    if again:
        head.load_state_dict(torch.load(path, weights_only=True))
    plan = Plan(args.minutes, args.max_steps, begin=0.7 if again else 0.0)
    run = Run(head, target, plan, args.seed)
    own = sum(p.numel() for p in run.head.parameters() if p.requires_grad)
    log(f"{name}: {own} parameters")
    run.run(_stream(args), log)
    run.save(path)
    log(f"{run.tokens} tokens in {run.step} steps, {run.seconds / 60:.1f} minutes")


def _stream(args: Namespace) -> Callable[[int, int], Iterator]:
    from demo import tokenizer
    from demo.batches import Diet, batches
    from demo.copying import Quotes
    from demo.corpus import HeldOut, docstring_sentences

    coder = tokenizer.load(args.data / "tokenizer.json")
    held, quotes = HeldOut(args.data / "heldout.json"), Quotes(docstring_sentences())
    # On drills a head learns to look back, as the target did.
    diets = (
        Diet(rows=4, length=256, chain=0.2, most=3, drills=0.5),
        Diet(rows=4, length=256, chain=0.2, most=3, drills=0.06),
        Diet(rows=2, length=768, chain=0.8, most=10, drills=0.05),
    )
    return lambda seed, phase: batches(coder, held, quotes, seed, diets[phase])


def export(args: Namespace, log: Log) -> None:
    """Export every trained head: the final 8 bits, and F32 and F16 for checks."""
    from gguf import GGMLQuantizationType as Kind

    from heads import export as out

    if not any((args.work / f"{name}.pt").exists() for name in ("eagle3", "mtp", "medusa")):
        raise ValueError(f"no trained head in {args.work}; train one first")
    args.heads.mkdir(parents=True, exist_ok=True)
    for kind, folder in ((Kind.Q8_0, args.heads), (Kind.F16, args.work), (Kind.F32, args.work)):
        mark = "" if kind == Kind.Q8_0 else f"-{kind.name.lower()}"
        made = []
        if head := trained("eagle3", args):
            made.append(folder / f"eagle3{mark}.gguf")
            out.write_eagle3(head, args.target, made[-1], kind)
        if head := trained("mtp", args):
            made.append(folder / f"mtp-block{mark}.gguf")
            out.write_mtp(head, made[-1], kind, layer=6)
        if head := trained("medusa", args):
            made.append(folder / f"medusa{mark}.gguf")
            out.write_medusa(head, made[-1], kind)
            out.write_safetensors(head, args.work / "medusa.safetensors")
        for path in made:
            log(f"{path.name}: {path.stat().st_size} bytes")


def acceptance(args: Namespace, log: Log) -> None:
    """Offline acceptance of the heads and of the draft model."""
    from heads import acceptance as offline
    from heads import frozen

    target = frozen.load(args.target)
    drafters = {"draft model": offline.of_model(frozen.load(args.target.with_name("draft.gguf")))}
    for name in ("eagle3", "mtp", "medusa"):
        if head := trained(name, args):
            drafters[name] = offline.of_head(head)
    texts = list(offline.replies(args.target, args.data / "heldout.json"))
    log(f"{len(texts)} replies, {sum(len(t.ids) - t.start for t in texts)} tokens")
    offline.measure(texts, target, drafters, log)


def trained(name: str, args: Namespace) -> Any:
    """The head of the newest checkpoint, or None where there is none."""
    import torch

    from heads import frozen
    from heads.models import HEADS

    path = args.work / f"{name}.pt"
    if not path.exists():
        return None
    head = HEADS[name](frozen.load(args.target))
    head.load_state_dict(torch.load(path, weights_only=True))
    return head.eval()


def check(args: Namespace, log: Log) -> None:
    """The exported files in llama.cpp against PyTorch."""
    from heads.check import check_files

    check_files(
        args.heads, args.work, args.target, args.data, lambda name: trained(name, args), log
    )


def record(args: Namespace, log: Log) -> None:
    """PyTorch's draft logits of the final files, for the tests."""
    from heads import record as out

    out.record(args.heads, args.target, args.data, lambda name: trained(name, args), log)


def compose(args: Namespace, log: Log) -> None:
    from heads.compose import compose_mtp

    compose_mtp(args.target, args.heads / "mtp-block.gguf", args.out)
    log(f"{args.out}: {args.out.stat().st_size} bytes")
