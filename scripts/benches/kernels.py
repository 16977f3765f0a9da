"""Passes with our own kernels and with llama.cpp's: their times, their bits, their errors.

Each file is loaded by two processes, one for each kind of kernels, since those are chosen once for
a process. They take turns: while one computes, the other is stopped, so that its waiting threads
take no time. A figure is the median of its turns. Without files, models of zeros are made in some
formats, two layers each of the size that models with eight billion weights have.

``--context N`` has N tokens in the cache before each pass, so that attention weighs in, in a cache
of the type ``--kv-type``. ``--unit`` computes ours by an instruction set that is not the best.
``--equal`` compares bits instead: of each row of a pass with those of the same token in a pass of
its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benches.shared.taking_turns import Side, answer_all, sides
from localspec.core.errors import LocalspecError
from localspec.kernels import build
from localspec.llama import weight_speed
from localspec.llama.context import Context
from localspec.llama.kernel_speed import KINDS
from localspec.llama.model import Model
from localspec.llama.own_kernels import register
from localspec.llama.passes import Passes, ordinary_tokens
from localspec.llama.proof import OWN_TYPES
from localspec.loading import kernel_proof, own_kernels
from localspec.loading.own_kernels import LLAMA, OWN

_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 128)
_EQUAL_WIDTHS = (*range(2, 21), 33, 64, 200, 512)
_BATCH = 512


@dataclass(frozen=True, slots=True)
class Setting:
    """How passes are computed, by either kind of kernels."""

    threads: int
    before: int = 0
    """Tokens in the cache before each pass."""
    kv_type: str = "f16"
    unit: str = ""
    """Instruction set of ours; the best one if empty."""

    @property
    def flags(self) -> list[str]:
        """For the process of one side."""
        return [
            *("--threads", str(self.threads)),
            *("--context", str(self.before)),
            *("--kv-type", self.kv_type),
            *("--unit", self.unit),
        ]


def both(task: str, file: Path, how: Setting) -> AbstractContextManager[dict[str, Side]]:
    """A process for our kernels, and one for llama.cpp's."""
    return sides({k: [*how.flags, "--answer", f"{task} {k}", str(file)] for k in (OWN, LLAMA)})


@contextlib.contextmanager
def computing(file: Path, kernels: str, how: Setting) -> Iterator[Context]:
    """A context of a model, in this process."""
    model = Model(file, gpu_layers=0, alone=False, own_kernels=kernels == OWN)
    try:
        if kernels == OWN and not model.uses_own_kernels:
            raise LocalspecError(f"{file.name} has no weights in a format of our kernels")
        context = Context(
            model,
            n_ctx=how.before + 2 * _BATCH,
            n_batch=_BATCH,
            threads=how.threads,
            kv_type=how.kv_type,
        )
        try:
            for begin in range(0, how.before, _BATCH):
                part = min(_BATCH, how.before - begin)
                context.forward([(0, ordinary_tokens(model, part), 0)])
            yield context
        finally:
            context.close()
    finally:
        model.close()


def answer(task: str, kernels: str, file: Path, how: Setting) -> None:
    """Be one side."""
    if kernels == OWN and how.unit:
        register(build.obtain().path, kernel_proof.libraries(), how.unit)
    elif kernels == OWN:
        own_kernels.engage(OWN)
    with computing(file, kernels, how) as context:
        if task == "bits":
            answer_all(lambda width: rows_that_differ(context, width))
        else:
            passes = Passes(context)
            answer_all(lambda widths: [passes.seconds(width) for width in widths])


def rows_that_differ(context: Context, width: int) -> tuple[int, float]:
    """Rows of a pass whose bits are not those of passes over one token, and the largest error."""
    tokens = ordinary_tokens(context.model, width)
    start = context.length(0)
    outputs = min(width, context.outputs)
    (together,) = context.forward([(0, tokens, outputs)])
    together = together.copy()
    context.truncate(0, start)
    rows, largest = 0, 0.0
    for at, token in enumerate(tokens, outputs - width):
        (single,) = context.forward([(0, [token], 1)])
        if at < 0:
            continue
        row = together[at]
        rows += not np.array_equal(single[0].view(np.uint32), row.view(np.uint32))
        largest = max(largest, float(np.abs(single[0] - row).max()))
    context.truncate(0, start)
    return rows, largest


def time_file(file: Path, widths: Sequence[int], turns: int, how: Setting) -> None:
    """Print a table of times of one file."""
    after = f", after {how.before} tokens in {how.kv_type}" if how.before else ""
    print(f"\n{file.stem}, {file.stat().st_size / 1e9:.2f} GB, {how.threads} threads{after}")
    print("tokens   own ms  t(n)/t(1)   llama.cpp ms  t(n)/t(1)   llama.cpp / own")
    with both("times", file, how) as pair:
        taken: dict[str, list[list[float]]] = {kernels: [] for kernels in pair}
        for turn in range(turns + 1):
            for kernels, side in pair.items():
                found = side.ask(widths)
                if turn:  # the first one warms up
                    taken[kernels].append(found)
    middle = {
        kernels: [1000 * statistics.median(column) for column in zip(*rows, strict=True)]
        for kernels, rows in taken.items()
    }
    ours, theirs = middle[OWN], middle[LLAMA]
    for width, own, llama in zip(widths, ours, theirs, strict=True):
        print(
            f"{width:6} {own:8.1f} {own / ours[0]:10.2f} {llama:14.1f} {llama / theirs[0]:10.2f} "
            f"{llama / own:17.2f}",
            flush=True,
        )


def compare_bits(file: Path, how: Setting) -> bool:
    """Print for which widths rows differ; whether ours have the same bits in all."""
    print(f"\n{file.stem}: rows that differ from passes over one token, largest difference")
    equal = True
    with both("bits", file, how) as pair:
        for kernels, side in pair.items():
            differing = {n: (rows, d) for n in _EQUAL_WIDTHS for rows, d in [side.ask(n)] if rows}
            text = ", ".join(f"{n}: {rows} ({d:.2g})" for n, (rows, d) in differing.items())
            print(f"  {kernels:5} {text or f'none in {len(_EQUAL_WIDTHS)} widths'}", flush=True)
            equal = equal and not (differing and kernels == OWN)
    return equal


def zero_models(folder: Path, formats: Sequence[str]) -> Iterator[Path]:
    """Models of zeros, one at a time; the time of a pass does not depend on values."""
    for kind in formats:
        path = folder / f"{kind}.gguf"
        weight_speed.write_model(path, kind)
        yield path
        path.unlink()


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--widths", type=int, nargs="+", default=_WIDTHS, metavar="N")
    parser.add_argument(
        "--formats", nargs="+", choices=OWN_TYPES, default=list(KINDS), metavar="NAME"
    )
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--context", type=int, default=0, metavar="N")
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--unit", default="", metavar="NAME", help="for example avx2")
    parser.add_argument("--equal", action="store_true", help="compare bits of wide passes")
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    a = parser.parse_args()
    how = Setting(a.threads, a.context, a.kv_type, a.unit)
    if a.answer:
        task, kernels = a.answer.split()
        answer(task, kernels, a.files[0], how)
        return 0
    equal = True
    with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
        for file in a.files or zero_models(Path(folder), a.formats):
            if a.equal:
                equal = compare_bits(file, how) and equal
            else:
                time_file(file, [1, *[n for n in a.widths if n != 1]], a.turns, how)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
