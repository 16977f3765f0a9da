"""The instruction sets that kernels are compiled for, with the compiler's flags."""

from __future__ import annotations

import platform
from dataclasses import dataclass

_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (
    *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"),
    *(*_AVX2, "-mprefer-vector-width=512"),
)


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """One of them; ``source/isa/NAME.h`` has its instructions."""

    name: str
    title: str
    """For users."""
    flags: tuple[str, ...]


_X86 = (
    InstructionSet("avx2", "AVX2", _AVX2),
    InstructionSet("avxvnni", "AVX-VNNI", (*_AVX2, "-mavxvnni")),
    InstructionSet("avx512vnni", "AVX-512 VNNI", _AVX512),
    InstructionSet("amx", "AMX", (*_AVX512, "-mamx-tile", "-mamx-int8")),
)
_ARM = (
    InstructionSet("neon", "NEON dot products", ("-march=armv8.2-a+dotprod+fp16",)),
    InstructionSet("neoni8mm", "NEON i8mm", ("-march=armv8.2-a+dotprod+fp16+i8mm",)),
)
_MACHINES = {
    **dict.fromkeys(("x86_64", "amd64"), _X86),
    **dict.fromkeys(("aarch64", "arm64"), _ARM),
}


def of_machine(machine: str | None = None) -> tuple[InstructionSet, ...]:
    """Those of a kind of processor, this machine's by default; none where it is not known."""
    return _MACHINES.get((machine or platform.machine()).lower(), ())


def title(name: str) -> str:
    """The name of an instruction set for users."""
    return next((s.title for s in (*_X86, *_ARM) if s.name == name), name)
