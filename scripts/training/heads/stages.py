"""Drafting heads for the embedded target: EAGLE-3, multi-token prediction, Medusa.

The target stays as it is; each head learns its distributions within a few minutes on two cores.
`compose` writes the target with the MTP block to --out and needs numpy and gguf only.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from demo.stages import DATA, DEMO, ROOT, Log, common, stream

STAGES = ("eagle3", "mtp", "medusa", "export", "record")
MORE = ("compose",)
NAMES = STAGES[:3]


def arguments(p: ArgumentParser) -> None:
    p.add_argument("--target", type=Path, default=DEMO / "target.gguf")
    p.add_argument("--heads", type=Path, default=ROOT / "tests/data/heads", help="finished heads")
    p.add_argument("--out", type=Path, default=Path("target-mtp.gguf"), help="file of `compose`")
    p.add_argument("--resume", action="store_true", help="go on with the last head; choose a seed")
    common(p, "heads", minutes=7)


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
    from heads.training import train

    torch.manual_seed(args.seed)
    target = frozen.load(args.target)
    head = HEADS[name](target)
    path = args.work / f"{name}.pt"
    again = args.resume and path.exists()
    if again:
        head.load_state_dict(torch.load(path, weights_only=True))
    budget = args.minutes, args.max_steps
    train(head, target, _stream(args), budget, args.seed, log, begin=0.7 if again else 0.0)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(head.state_dict(), path)


def _stream(args: Namespace) -> Callable[[int, int], Iterator]:
    from demo.batches import Diet

    # On drills a head learns to look back, as the target did.
    diets = (
        Diet(rows=4, length=256, chain=0.2, most=3, drills=0.5),
        Diet(rows=4, length=256, chain=0.2, most=3, drills=0.06),
        Diet(rows=2, length=768, chain=0.8, most=10, drills=0.05),
    )
    return stream(args.data, diets)


def _trained(args: Namespace) -> Iterator[tuple[str, Any]]:
    """The heads of the newest checkpoints."""
    import torch

    from heads import frozen
    from heads.models import HEADS

    for name in NAMES:
        path = args.work / f"{name}.pt"
        if path.exists():
            head = HEADS[name](frozen.load(args.target))
            head.load_state_dict(torch.load(path, weights_only=True))
            yield name, head.eval()


def export(args: Namespace, log: Log) -> None:
    """Export every trained head."""
    from heads import export as out

    made = []
    args.heads.mkdir(parents=True, exist_ok=True)
    for name, head in _trained(args):
        made.append(args.heads / f"{'mtp-block' if name == 'mtp' else name}.gguf")
        out.WRITERS[name](head, args.target, made[-1])
    if not made:
        raise ValueError(f"no trained head in {args.work}; train one first")
    for path in made:
        log(f"{path.name}: {path.stat().st_size} bytes")


def record(args: Namespace, log: Log) -> None:
    """PyTorch's draft logits of the final files, for the tests."""
    from heads.record import record as write

    write(args.heads, args.target, args.data or DATA, dict(_trained(args)), log)


def compose(args: Namespace, log: Log) -> None:
    from heads.compose import compose_mtp

    compose_mtp(args.target, args.heads / "mtp-block.gguf", args.out)
    log(f"{args.out}: {args.out.stat().st_size} bytes")
