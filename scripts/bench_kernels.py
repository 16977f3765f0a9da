"""Passes with our own kernels and with llama.cpp's: their times, their bits, their errors.

Each file is loaded by two processes, one for each kind of kernels, since those are chosen once for
a process. They take turns: while one computes, the other is stopped, so that its waiting threads
take no time. A figure is the median of its turns. Without files, models of zeros are made in some
formats, two layers each of the size that models with eight billion weights have.

``--equal`` compares bits instead: of each row of a pass with those of the same token in a pass of
its own. ``--against-numpy`` compares logits with numpy's, for random models of every format.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from localspec.errors import LocalspecError
from localspec.llama import weight_speed
from localspec.llama.context import Context
from localspec.llama.kernel_speed import KINDS
from localspec.llama.model import Model
from localspec.llama.passes import Passes, ordinary_tokens
from localspec.llama.proof import cases
from localspec.llama.synthetic import OWN_TYPES
from localspec.loading import own_kernels
from localspec.loading.own_kernels import LLAMA, OWN

_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 128)
_EQUAL_WIDTHS = (*range(2, 21), 33, 64, 200, 512)
_BATCH = 512
_SIDES = (OWN, LLAMA)


class Side:
    """A process that computes with one kind of kernels; it is stopped but for its turns."""

    def __init__(self, kernels: str, task: str, file: Path | None, threads: int) -> None:
        line = [sys.executable, "-P", __file__, "--threads", str(threads)]
        line += ["--answer", f"{task} {kernels}", *([str(file)] if file else [])]
        self._process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ask()  # it has loaded its model

    def ask(self, question: object = None) -> Any:
        """Its answer to a question, with the processor to itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):  # its answer is missing below
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("a process ended without an answer; its error is above")
        self._process.send_signal(signal.SIGSTOP)
        return json.loads(answer)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def sides(task: str, file: Path | None, threads: int) -> Iterator[dict[str, Side]]:
    """A process for our kernels, and one for llama.cpp's."""
    with contextlib.ExitStack() as stack:
        found = {}
        for kernels in _SIDES:
            found[kernels] = Side(kernels, task, file, threads)
            stack.callback(found[kernels].close)
        yield found


@contextlib.contextmanager
def computing(file: Path, kernels: str, threads: int, batch: int) -> Iterator[Context]:
    """A context of a model, in this process."""
    model = Model(file, gpu_layers=0, alone=False, own_kernels=kernels == OWN)
    try:
        if kernels == OWN and not model.uses_own_kernels:
            raise LocalspecError(f"{file.name} has no weights in a format of our kernels")
        context = Context(model, n_ctx=2 * batch, n_batch=batch, threads=threads)
        try:
            yield context
        finally:
            context.close()
    finally:
        model.close()


def answer(task: str, kernels: str, file: Path | None, threads: int) -> None:
    """Be one side: answer each line of stdin by one of stdout."""
    if kernels == OWN:
        own_kernels.engage(OWN)
    with contextlib.ExitStack() as stack:
        context = None
        if file is not None:
            context = stack.enter_context(computing(file, kernels, threads, _BATCH))
        passes = Passes(context) if context is not None else None
        for line in sys.stdin:
            question = json.loads(line)
            found: Any = None
            if question is not None:
                if task == "errors":
                    found = errors(question, kernels, threads)
                elif task == "bits":
                    assert context is not None
                    found = rows_that_differ(context, question)
                else:
                    assert passes is not None
                    found = [passes.seconds(width) for width in question]
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


def rows_that_differ(context: Context, width: int) -> tuple[int, float]:
    """Rows of a pass whose bits are not those of passes over one token, and the largest error."""
    tokens = ordinary_tokens(context.model, width)
    outputs = min(width, context.outputs)
    (together,) = context.forward([(0, tokens, outputs)])
    together = together.copy()
    context.truncate(0, 0)
    rows, largest = 0, 0.0
    for at, token in enumerate(tokens, outputs - width):
        (single,) = context.forward([(0, [token], 1)])
        if at < 0:
            continue
        row = together[at]
        rows += not np.array_equal(single[0].view(np.uint32), row.view(np.uint32))
        largest = max(largest, float(np.abs(single[0] - row).max()))
    context.truncate(0, 0)
    return rows, largest


def errors(kind: str, kernels: str, threads: int) -> tuple[float, float]:
    """Mean and largest error of logits of a random model, in standard deviations of their row."""
    with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
        case = next(cases(Path(folder), [kind]))
        with computing(case.path, kernels, threads, _BATCH) as context:
            outputs = min(context.outputs, len(case.tokens))
            (found,) = context.forward([(0, case.tokens, outputs)])
            expected = case.expected[-outputs:]
            off = np.abs(found - expected) / expected.std(axis=1, keepdims=True)
    return float(off.mean()), float(off.max())


def time_file(file: Path, widths: Sequence[int], turns: int, threads: int) -> None:
    """Print a table of times of one file."""
    print(f"\n{file.stem}, {file.stat().st_size / 1e9:.2f} GB, {threads} threads")
    print("tokens   own ms  t(n)/t(1)   llama.cpp ms  t(n)/t(1)   llama.cpp / own")
    with sides("times", file, threads) as both:
        taken: dict[str, list[list[float]]] = {kernels: [] for kernels in both}
        for turn in range(turns + 1):
            for kernels, side in both.items():
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


def compare_bits(file: Path, threads: int) -> bool:
    """Print for which widths rows differ; whether ours have the same bits in all."""
    print(f"\n{file.stem}: rows that differ from passes over one token, largest difference")
    equal = True
    with sides("bits", file, threads) as both:
        for kernels, side in both.items():
            differing = {n: (rows, d) for n in _EQUAL_WIDTHS for rows, d in [side.ask(n)] if rows}
            text = ", ".join(f"{n}: {rows} ({d:.2g})" for n, (rows, d) in differing.items())
            print(f"  {kernels:5} {text or f'none in {len(_EQUAL_WIDTHS)} widths'}", flush=True)
            equal = equal and not (differing and kernels == OWN)
    return equal


def compare_numbers(threads: int) -> None:
    """Print how far both are from numpy, by format."""
    print("errors of logits, in standard deviations of their row: mean, largest")
    print("format       own             llama.cpp")
    with sides("errors", None, threads) as both:
        for kind in OWN_TYPES:
            found = [side.ask(kind) for side in both.values()]
            cells = "   ".join(f"{mean:.2e} {largest:.2e}" for mean, largest in found)
            print(f"{kind:8} {cells}", flush=True)


def zero_models(folder: Path) -> Iterator[Path]:
    """Models of zeros, one at a time; the time of a pass does not depend on values."""
    for kind, ggml_type in KINDS.items():
        path = folder / f"{kind}.gguf"
        weight_speed.write_model(path, ggml_type)
        yield path
        path.unlink()


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--widths", type=int, nargs="+", default=_WIDTHS, metavar="N")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--equal", action="store_true", help="compare bits of wide passes")
    what.add_argument("--against-numpy", action="store_true", help="compare logits with numpy's")
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.answer:
        task, kernels = a.answer.split()
        answer(task, kernels, a.files[0] if a.files else None, a.threads)
        return 0
    if a.against_numpy:
        compare_numbers(a.threads)
        return 0
    equal = True
    with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
        for file in a.files or zero_models(Path(folder)):
            if a.equal:
                equal = compare_bits(file, a.threads) and equal
            else:
                time_file(file, [1, *[n for n in a.widths if n != 1]], a.turns, a.threads)
    return 0 if equal else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LocalspecError as error:
        sys.exit(str(error))
