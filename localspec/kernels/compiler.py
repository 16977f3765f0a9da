"""Calls the C++ compiler for the kernels: once for each instruction set, then for the library."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from localspec.compiling import cxx
from localspec.compiling.cxx import Failure
from localspec.compiling.llama_source import Source
from localspec.compiling.variants import variants
from localspec.core.errors import LocalspecError
from localspec.core.processes import host
from localspec.kernels.instruction_sets import INCLUDED, InstructionSet

SOURCE = Path(__file__).with_name("source")
_PATIENCE_S = 900.0
FLAGS = (
    *("-O3", "-std=c++17", "-fPIC", "-ffp-contract=off", "-fno-math-errno"),
    "-fvisibility=hidden",
)


class RefusedError(LocalspecError):
    """The compiler refuses the source."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """How the source is compiled."""

    command: tuple[str, ...]
    libraries: Path
    """Folder of llama.cpp's libraries."""
    sets: tuple[InstructionSet, ...]
    source: Path = SOURCE
    defines: tuple[str, ...] = ()
    """Further flags of every unit, by which kernels are made wrong to see that it is found."""

    def compile(
        self, included: Source, made: Path, on_unit: Callable[[str], None] | None = None
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """Compile to the file ``made``: the units in it, and the reasons of those left out.

        Raises:
            RefusedError: the compiler refuses every unit, or the seam to llama.cpp.
            LocalspecError: memory, disk space or time was lacking, or the compiler crashes.
        """
        scratch = made.parent
        included.write(scratch / "llama.cpp")

        def unit(one: InstructionSet) -> Failure | None:
            failed = self._unit(one, scratch)
            if on_unit is not None:
                on_unit(one.name)
            return failed

        with ThreadPoolExecutor(host.processors()) as pool:
            results = [*pool.map(unit, self.sets)]
        failed: dict[str, Failure] = {}
        for one, first in zip(self.sets, results, strict=True):
            # Alone, there may be memory enough.
            again = first is not None and (first.lacking or first.crashed)
            result = self._unit(one, scratch) if again else first
            if result is not None and result.lacking:
                raise _error(result)
            if result is not None:
                failed[one.name] = result
        units = tuple(one.name for one in self.sets if one.name not in failed)
        if not units:
            raise _error(next(iter(failed.values())))
        include = [f"-I{scratch / 'llama.cpp' / folder}" for folder in INCLUDED]
        best_first = " ".join(f"LS_EACH({name})" for name in reversed(units))
        line = [f"-DLS_UNITS={best_first}", *include, "-shared", str(self.source / "plugin.cpp")]
        line += [str(scratch / f"{name}.o") for name in units]
        wrong = self._run([*line, *self._link()], made)
        if wrong is not None:
            raise _error(wrong)
        return units, {name: result.why for name, result in failed.items()}

    def _unit(self, one: InstructionSet, scratch: Path) -> Failure | None:
        line = [*one.flags, *self.defines, f'-DLS_UNIT="isa/{one.name}.h"']
        line += ["-c", str(self.source / "unit.cpp")]
        return self._run(line, scratch / f"{one.name}.o")

    def _link(self) -> list[str]:
        if sys.platform == "darwin":
            return ["-undefined", "dynamic_lookup"]
        # One of several is chosen when it runs: its functions are found then.
        cpu = [] if variants(self.libraries) else ["-lggml-cpu"]
        return [f"-L{self.libraries}", *cpu, "-lggml-base", "-pthread"]

    def _run(self, arguments: list[str], made: Path) -> Failure | None:
        line = [*self.command, *FLAGS, f"-I{self.source}", *arguments, "-o", str(made)]
        return cxx.run(line, _PATIENCE_S, "the kernels")

    def version(self) -> str:
        """The first line that the compiler says about itself."""
        try:
            done = subprocess.run(
                [*self.command, "--version"], capture_output=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return self.command[0]
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        return lines[0].strip() if lines else self.command[0]


def _error(failed: Failure) -> LocalspecError:
    kind = LocalspecError if failed.lacking or failed.crashed else RefusedError
    return kind(f"the kernels do not compile: {failed.why}")
