"""The model that sees: a tower and projector, the demo's target that reads their rows, and a draft.
One core needs about 50 minutes of its time.

`look` trains the tower alone on labels of synthetic pictures; `spell` tower and projector, so that
rows spell a note of what is there; `talk` these and the target on questions and answers; `draft` the
draft on the same talks without the pictures, which it cannot see; `export` writes the three files.
Minutes are of processor time (look 13, spell 3, talk 18, draft 4).
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from random import Random

from demo.stages import DATA, DEMO, ROOT, Log, stream

STAGES = ("look", "spell", "talk", "draft", "export")
MORE = ()


def arguments(p: ArgumentParser) -> None:
    p.add_argument("--out", type=Path, default=DEMO / "sees")
    p.add_argument("--work", type=Path, default=ROOT / "build/eye", help="checkpoints")
    p.add_argument("--minutes", type=float, help="budget of a stage")


def look(args: Namespace, log: Log) -> None:
    from .training import look as train

    args.work.mkdir(parents=True, exist_ok=True)
    train(args.minutes or 13, args.seed, args.work, log)


def spell(args: Namespace, log: Log) -> None:
    from demo import tokenizer as tok

    from .training import spell as train

    coder = tok.load(DATA / "tokenizer.json")
    train(DEMO / "target.gguf", coder, args.minutes or 3, args.seed, args.work, log)


def talk(args: Namespace, log: Log) -> None:
    from demo.batches import Diet

    from .lessons import Teacher
    from .training import read, talk_about

    own = stream(DATA, [Diet(rows=3, length=256, chain=0.2, most=3, drills=0.05)])(args.seed, 0)
    teacher = Teacher(DATA, Random(args.seed))
    seeing = read(DEMO / "target.gguf", args.work / "rows.pt")
    talk_about(seeing, teacher, own, args.minutes or 20, args.work, log)


def draft(args: Namespace, log: Log) -> None:
    from .lessons import Teacher
    from .training import distill

    teacher = Teacher(DATA, Random(args.seed + 1), own=0.4)
    distill(DEMO / "draft.gguf", teacher, args.minutes or 5, args.work, log)


def export(args: Namespace, log: Log) -> None:
    from demo.export import export_pair

    from .tower import write
    from .training import read, read_draft

    args.out.mkdir(parents=True, exist_ok=True)
    seeing = read(DEMO / "target.gguf", args.work / "seeing.pt")
    path = args.out / "mmproj.gguf"
    write(seeing.tower, seeing.projector, path)
    log(f"{path.name}: {path.stat().st_size} bytes")
    models = {"target": seeing.model, "draft": read_draft(DEMO / "draft.gguf", args.work)}
    export_pair(models, DATA / "tokenizer.json", args.out, log, args.work, of=" of demo-sees")
