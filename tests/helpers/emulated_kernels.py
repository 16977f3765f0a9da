"""Kernels as programs: another processor's, which an emulator runs, or those of this one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.compiling import cxx
from localspec.kernels.compiler import SOURCE
from localspec.kernels.instruction_sets import InstructionSet, of_machine
from localspec.kernels.library import Floats

PROGRAM = Path(__file__).parents[1] / "data" / "kernel_unit.cpp"
_FLAGS = ("-std=c++17", "-ffp-contract=off", "-fno-math-errno")
_PRODUCT, _ATTENTION, _ROWS = range(3)
Halves = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Kernels:
    """A program of them that waits for cases."""

    _process: subprocess.Popen[bytes]

    def product(
        self, unit: str, ggml_type: int, weights: NDArray[np.uint8], x: Floats, m: int
    ) -> Floats:
        """See `KernelLibrary`; the program has one unit."""
        return self._of_rows(_PRODUCT, ggml_type, weights, x, m)

    def rows_product(self, ggml_type: int, a: NDArray[np.uint8], x: Floats, m: int) -> Floats:
        """(n, m): rows of ``x`` times the m rows of ``a``, which are not packed."""
        return self._of_rows(_ROWS, ggml_type, a, x, m)

    def attention(self, q: Floats, k: Halves, v: Halves, mask: Halves) -> Floats:
        """(rows, v_size): what (rows, k_size) queries find in cells that ``mask`` lets them see."""
        sizes = (_ATTENTION, len(q), len(k), k.shape[1], v.shape[1], 0)
        found = self._ask(sizes, (q, k, v, mask), len(q) * v.shape[1])
        return found.reshape(len(q), v.shape[1])

    def _of_rows(
        self, what: int, ggml_type: int, weights: NDArray[np.uint8], x: Floats, m: int
    ) -> Floats:
        n, k = x.shape
        sizes = (what, ggml_type, m, k, n, weights.nbytes)
        return self._ask(sizes, (weights, x), n * m).reshape(n, m)

    def _ask(
        self, sizes: tuple[int, ...], data: tuple[NDArray[np.generic], ...], answer: int
    ) -> Floats:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(np.array(sizes, np.int64).tobytes())
        for one in data:
            self._process.stdin.write(one.tobytes())
        self._process.stdin.flush()
        found = self._process.stdout.read(answer * 4)
        assert len(found) == answer * 4, "the program ended"
        return np.frombuffer(found, np.float32).copy()


@contextmanager
def emulated(unit: InstructionSet, folder: Path) -> Iterator[Kernels]:
    """The kernels of an instruction set of ARM; skips where they cannot be compiled or run."""
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs g++-aarch64-linux-gnu and qemu-user")
    with _running([compiler, "-O3", "-static"], [emulator, "-cpu", "max"], unit, folder) as found:
        yield found


@contextmanager
def of_this_machine(
    folder: Path, name: str = "", source: Path = SOURCE, level: str = "-O3"
) -> Iterator[Kernels]:
    """Kernels of an instruction set, by default the least one, compiled at a level of optimization;
    skips where there are none.
    """
    command = cxx.command()
    sets = [one for one in of_machine() if name in {"", one.name}]
    if command is None or not sets:
        pytest.skip("needs a C++ compiler and a processor that there are kernels for")
    with _running([*command, level], [], sets[0], folder, source) as found:
        yield found


@contextmanager
def _running(
    compiler: list[str],
    emulator: list[str],
    unit: InstructionSet,
    folder: Path,
    source: Path = SOURCE,
) -> Iterator[Kernels]:
    """They are compiled unless ``folder``, which several processes may use, has them."""
    program = folder / unit.name
    if not program.exists():
        _compile(compiler, unit, source, program)
    pipe = subprocess.PIPE
    with subprocess.Popen([*emulator, str(program)], stdin=pipe, stdout=pipe) as process:
        try:
            yield Kernels(process)
        finally:
            process.kill()


def _compile(compiler: list[str], unit: InstructionSet, source: Path, program: Path) -> None:
    made = program.with_suffix(f".{os.getpid()}")
    line = [*compiler, *_FLAGS, *unit.flags, f"-I{source}", f'-DLS_UNIT="isa/{unit.name}.h"']
    line += [f"-DUNIT={unit.name}", str(source / "unit.cpp"), str(PROGRAM), "-o", str(made)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made.replace(program)
