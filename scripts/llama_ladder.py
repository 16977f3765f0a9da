"""The ladder of builds of llama.cpp: from the fastest down to the first that is sound here.

Failed steps are recorded in the folder of the wheel, under the key of the build, so the next
checkout begins where this one ended.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from bootstrap_steps import read_notes, write_notes
from llama_backend import Machine

NOTES = "ladder.json"
_AMX = ("amx-tile", "amx-int8", "amx-bf16")
_PORTABLE = {
    "sse4_2": "GGML_SSE42",
    "avx": "GGML_AVX",
    "avx2": "GGML_AVX2",
    "bmi2": "GGML_BMI2",
    "fma": "GGML_FMA",
    "f16c": "GGML_F16C",
}
"""Instruction sets that a portable build of ggml for x86 assumes."""


@dataclass(frozen=True)
class Rung:
    """One set of build options."""

    name: str
    """Reads on after "llama.cpp, built"."""
    options: tuple[str, ...] = ()
    """Options for CMake."""
    work: float = 1.0
    """Times the compiling of a usual build."""


NATIVE = Rung("natively")


def rungs(machine: Machine) -> tuple[Rung, ...]:
    """The steps from the fastest to the safest, without those that change nothing here."""
    flags = processor_flags(machine)
    steps = [NATIVE]
    without: list[str] = []
    if "amx_tile" in flags:
        kept = ("-DLOCALSPEC_KEEP_STORES=ON",)
        steps.append(Rung("natively, with all stores before AMX kept", kept))
        without += _AMX
        steps.append(Rung("natively without AMX", (_kernel_options(without),)))
    if "avx512f" in flags:
        without.append("avx512f")
        steps.append(Rung("natively without AVX-512", (_kernel_options(without),)))
    # Named one by one: ggml would take them from an earlier configuration of the same folder.
    named = [f"-D{option}={_on(flag in flags)}" for flag, option in _PORTABLE.items()]
    options = ("-DGGML_NATIVE=OFF", *(named if flags else ()))
    return (*steps, Rung("for any processor of this kind", options))


def processor_flags(machine: Machine) -> frozenset[str]:
    """Vector instructions of an x86 processor, by their Linux names; empty where unknown."""
    try:
        known = json.loads(machine.cpu)
    except ValueError:
        return frozenset()
    return (
        frozenset(str(known.get("flags", "")).split()) if isinstance(known, dict) else frozenset()
    )


def _kernel_options(without: list[str]) -> str:
    return "-DLOCALSPEC_KERNEL_OPTIONS=" + ";".join(f"-mno-{name}" for name in without)


def _on(flag: bool) -> str:
    return "ON" if flag else "OFF"


class Ladder:
    """The state of a build: recorded failures; the first step without one is next."""

    def __init__(self, folder: Path, steps: tuple[Rung, ...]) -> None:
        self._folder = folder
        self._steps = steps
        self.failed = read_notes(folder / NOTES)
        """Names of rungs, and what failed there."""

    @property
    def rung(self) -> Rung | None:
        """The step to build; None if every step has failed."""
        return next((step for step in self._steps if step.name not in self.failed), None)

    @property
    def last(self) -> Rung:
        """The safest step."""
        return self._steps[-1]

    def fail(self, rung: Rung, why: str) -> None:
        """Record the failure and delete the wheel."""
        self.failed[rung.name] = why
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(0o700, parents=True)
        write_notes(self._folder / NOTES, self.failed)

    def forget(self) -> None:
        """Delete the record: the next build begins at the top."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def note(self, path: Path, rung: Rung) -> None:
        """Write the step of the current build, for `localspec doctor`."""
        write_notes(path, {"rung": rung.name, "failed": self.failed})
