"""What kernels are compiled for and against: instruction sets with the compiler's flags, and
headers of llama.cpp, known by their SHA-256.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

from localspec.compiling.llama_source import Source, Wanted, find

_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (
    *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"),
    *(*_AVX2, "-mprefer-vector-width=512"),
)

FILES = {
    "ggml/include/ggml-alloc.h": (
        "94e4cd069b9313b2ceb35dacec901981e0bb478d8bb31035b7126be091998c23"
    ),
    "ggml/include/ggml-backend.h": (
        "46d84cb998105f871240864fd0f55446939a2fe86c5c281afa63a010fb1f65a2"
    ),
    "ggml/include/ggml-cpu.h": ("316279e004cdeb8e6ef78599acb602bf79a8abdf897fed9fd1914808c1518c6e"),
    "ggml/include/ggml.h": ("12ee71f99db7db9b353bc02b1fbb57c344ee17c01ac5fb7952b41a637a747ea9"),
    "ggml/include/gguf.h": ("e56714aab702e5ce62ee587a409643c08f7e93e8fbb77f48ef7cc85075f96fa4"),
    "ggml/src/ggml-backend-impl.h": (
        "683e0583268e91e1f50b4ffc416b6523e0cec2dfdb3984c89792bda29e32566b"
    ),
    "ggml/src/ggml-cpu/ggml-cpu-impl.h": (
        "785a19aac84bd35671d34b1986b920baadccdf61cd8b81e787028f6ac24cae60"
    ),
    "ggml/src/ggml-cpu/traits.h": (
        "26e1b41879091a663325848aa82a4023b459fd1e688b3b0e2a9bde3e72a3a764"
    ),
    "ggml/src/ggml-impl.h": ("43564db0238aebb7ed68501e346c194866b5dac218d1d37b26baff9f458c00d3"),
}
"""SHA-256 of each header, by its path in llama.cpp."""
INCLUDED = ("ggml/include", "ggml/src", "ggml/src/ggml-cpu")
"""Folders that the compiler looks for them in."""


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
    """The instruction sets that units are compiled for on a kind of processor, the best last; by
    default on this machine's. There are none where the kind is not known.
    """
    return _MACHINES.get((machine or platform.machine()).lower(), ())


def title(name: str) -> str:
    """The name of an instruction set for users."""
    return next((s.title for s in (*_X86, *_ARM) if s.name == name), name)


def headers(*, offline: bool = False) -> Source:
    """The headers, as `llama_source.find`.

    Raises:
        LocalspecError: they are not there and cannot be had.
    """
    wanted = Wanted("localspec's library of kernels", FILES, "start with the network once")
    return find(wanted, offline=offline)
