"""Compiles the kernel for rows of logits: ``python -m localspec.core.kernel.build``.

Takes about a second, and a C compiler: `CC`, or cc, gcc or clang. The result belongs to this Python
environment. It is used only after it gave what the reference gives.
"""

from __future__ import annotations

import functools
import itertools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from localspec.core import kernel
from localspec.core.errors import LocalspecError
from localspec.core.files import native
from localspec.core.kernel import Cut, RowKernel
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise, Stream
from localspec.core.processes import commands
from localspec.core.values import Logits

_FLAGS = ("-O3", "-ffp-contract=off", "-shared", "-fPIC")
_PATIENCE_S = 120.0
_SAMPLINGS = (
    Sampling(temperature=1.0),
    Sampling(temperature=0.3, top_p=1.0, min_p=0.0),
    Sampling(temperature=1.7, top_k=200, top_p=0.999, min_p=0.0),
    Sampling(temperature=0.8, top_k=2, top_p=0.5),
    Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
    Sampling(temperature=0.004, top_k=0, top_p=1.0, min_p=0.0),
)


def compiler(environ: Mapping[str, str]) -> list[str] | None:
    """The command of a C compiler; None if there is none, or ``CC`` is no command."""
    try:
        named = shlex.split(environ.get("CC", ""))
    except ValueError:
        return None
    for command in (named, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return command
    return None


def build(environ: Mapping[str, str] = os.environ) -> Path:
    """Compile the kernel unless it is there, and check it.

    Raises:
        LocalspecError: no compiler, or one that fails; or what it made is wrong, and is removed.
    """
    wanted = kernel.library()
    if native.is_stored(wanted):
        return native.trusted(wanted)
    command = compiler(environ)
    if command is None:
        raise LocalspecError("there is no C compiler; set CC to one")
    try:
        return native.store(
            wanted.parent, wanted.name, functools.partial(_compile, command), _check, shared=True
        )
    except OSError as error:
        raise LocalspecError(f"{wanted.parent}: {error.strerror or error}") from None


def _compile(command: list[str], fresh: Path) -> None:
    try:
        line = [*command, *_FLAGS, "-o", str(fresh), str(kernel.SOURCE), "-lm"]
        made = commands.run(line, _PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise LocalspecError(f"{command[0]} takes longer than {_PATIENCE_S:.0f} s") from None
    if made.returncode:
        said = (made.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"])[0]
        raise LocalspecError(f"{command[0]} does not compile the kernel: {said}")


def _check(fresh: Path) -> None:
    wrong = first_difference(RowKernel(fresh))
    if wrong:
        raise LocalspecError(f"what was compiled is not right: {wrong}")


def first_difference(compiled: RowKernel) -> str:
    """Where the kernel differs from the reference, on some rows of every kind; "" if nowhere."""
    for name, row in _rows():
        wrong = next((w for s in _SAMPLINGS if (w := _difference(compiled, row, s))), "")
        near = row[row >= row.max() - 8.0]
        mass = float(np.exp(near - row.max()).astype(np.float64).sum())
        if not wrong and not np.isclose(compiled.head(row, 8.0) or 0.0, mass, rtol=1e-4):
            wrong = "another sum"
        if not wrong and compiled.largest(row) != np.argmax(row):
            wrong = "another largest logit"
        if wrong:
            return f"{wrong}, {name}"
    for odd, place in itertools.product((np.nan, np.inf), (0, 2047, 4999)):
        row = np.zeros(5000, np.float32)
        row[place] = odd
        gave = compiled.best(row, 4), compiled.head(row, 8.0), compiled.largest(row)
        if any(one is not None for one in (*gave, compiled.whole(row, 1.0))):
            return f"{odd} passes"
    return ""


def _difference(compiled: RowKernel, row: Logits, s: Sampling) -> str:
    noise = Noise(7).by_reference()
    wanted = LogitsProcessor(s, len(row)).by_reference()(row, ())
    if s.top_k == 0:
        found = compiled.whole(row, s.temperature)
    else:
        cut = Cut(s.top_k, s.top_p, s.min_p, s.temperature)
        found = compiled.distribution(row, cut)
    if found is None or not np.array_equal(found.ids, wanted.ids):
        return "other tokens"
    if not np.allclose(found.probs, wanted.probs, rtol=1e-14, atol=0):
        return "other probabilities"
    for position in range(8):
        drawn = compiled.draw(wanted, noise.key(position, Stream.SAMPLE))
        if drawn != noise.draw(wanted, position, Stream.SAMPLE):
            return "another draw"
    return ""


def _rows() -> list[tuple[str, Logits]]:
    rng = np.random.default_rng(0)
    ordinary = rng.normal(0, 2, 40_000).astype(np.float32)
    ordinary[rng.integers(0, 40_000, 20)] += np.linspace(6, 14, 20, dtype=np.float32)
    ties = rng.integers(-3, 4, 20_011).astype(np.float32)
    forbidden = np.full(30_000, -np.inf, np.float32)
    forbidden[rng.integers(0, 30_000, 150)] = rng.normal(0, 3, 150)
    rising = (np.arange(9_000) / 500).astype(np.float32)
    return [
        ("an ordinary row", ordinary),
        ("a row of ties", ties),
        ("a row of few tokens", forbidden),
        ("a rising row", rising),
        ("a falling row", rising[::-1].copy()),
        ("a short row", ordinary[:300].copy()),
        ("a long row", np.concatenate([ordinary - 1, ordinary])),
    ]


def main() -> int:
    """Exit code 1 where the kernel cannot be compiled, which costs time alone."""
    try:
        sys.stdout.write(f"{build()}\n")
    except LocalspecError as error:
        sys.stderr.write(f"the kernel for rows of logits is left out: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
