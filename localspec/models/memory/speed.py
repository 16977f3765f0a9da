"""Expected speed of a pair on this machine: an estimate from its size, before it is downloaded.

Decoding reads the weights once for each pass, so the seconds of a pass are the bytes that it reads
times what this machine takes for a byte (`localspec.llama.weight_speed`), a number that grows with
the tokens of the pass where the machine is bound by arithmetic. Drafting adds what the drafter
reads; how many drafted tokens are accepted is a typical figure (`Reads.acceptance`). Attention over
a long context is left out, so that long chats are slower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from localspec.models.memory.machine import Memory

_Q4_0 = ("q4_0", "-qat-")
"""Parts of names of files in Q4_0: models trained for 4 bits are."""
_DEFAULT = "Q4_K"
"""The type whose times are taken for types that were not measured."""


@dataclass(frozen=True, slots=True)
class MachineSpeed:
    """Seconds that this machine takes for a byte of weights, by type and tokens of a pass."""

    host: Mapping[str, Mapping[int, float]]
    gpu: Mapping[str, Mapping[int, float]]
    """Empty without a GPU."""
    disturbed: bool = False
    """Whether other programs used the processor meanwhile, so that it seemed slower."""

    def least(self, other: MachineSpeed) -> MachineSpeed:
        """The least seconds of two measurements."""
        return MachineSpeed(
            _least(self.host, other.host),
            _least(self.gpu, other.gpu),
            self.disturbed and other.disturbed,
        )

    def curve(self, kind: str, on_gpu: float) -> dict[int, float]:
        """Seconds of a byte by width, where a share of the weights is on the GPU."""
        host = self.host.get(kind) or self.host[_DEFAULT]
        if not (self.gpu and on_gpu):
            return dict(host)
        gpu = self.gpu.get(kind) or self.gpu[_DEFAULT]
        widths = sorted(host.keys() & gpu.keys())
        return {n: on_gpu * gpu[n] + (1 - on_gpu) * host[n] for n in widths}


def _least(
    one: Mapping[str, Mapping[int, float]], other: Mapping[str, Mapping[int, float]]
) -> dict[str, dict[int, float]]:
    return {
        kind: {
            n: min(curve[kind][n] for curve in (one, other) if n in curve.get(kind, {}))
            for n in sorted({*one.get(kind, {}), *other.get(kind, {})})
        }
        for kind in {**one, **other}
    }


@dataclass(frozen=True, slots=True)
class Reads:
    """The bytes that a pair reads for a token, and how well it drafts."""

    target_bytes: int
    draft_bytes: int
    """Bytes that a drafted token reads; 0 where none is drafted by a model."""
    kind: str
    """Type of most of the target's weights, such as Q4_K."""
    reads: float = 1.0
    """Share of the target that passes read at all: without tables that are only looked up in."""
    active: float = 1.0
    """Share of what is read that one token needs, where its experts are a few of many."""
    acceptance: float = 0.0
    """Typical share of verified drafted tokens that are accepted; 0: nothing is drafted."""

    @classmethod
    def alone(cls, n_bytes: int, name: str) -> Reads:
        """A model outside the catalogue: it reads its whole file, and has no drafter."""
        return cls(n_bytes, 0, weight_type(name))

    @property
    def size(self) -> float:
        """Bytes of a dense model that is about as able."""
        return self.target_bytes * math.sqrt(self.reads * self.active)

    def read(self, width: int) -> float:
        """Bytes of the target that a pass over ``width`` tokens reads, where each token takes
        experts independently of the others.
        """
        return self.target_bytes * self.reads * (1 - (1 - self.active) ** width)


SLOW = 2.0
"""Tokens per second below which a pair is too slow to chat with."""


def weight_type(name: str) -> str:
    """The type of most weights, by the name of a file; a measured type stands in for others."""
    return "Q4_0" if any(mark in name.lower() for mark in _Q4_0) else _DEFAULT


@dataclass(frozen=True, slots=True)
class Expected:
    """Tokens per second of a pair on this machine, about."""

    plain: float
    drafted: float
    """With the draft length that is best here; equal to `plain` where drafting does not pay."""
    at_least: bool = False
    """Whether these are lower bounds: other programs were busy when the machine was measured."""

    @property
    def slow(self) -> bool:
        """Whether it is surely too slow to chat with."""
        return self.drafted < SLOW and not self.at_least

    def __str__(self) -> str:
        """Both speeds, or the one that both are, with as many digits as an estimate deserves; a
        ``+`` marks lower bounds.
        """
        plain, drafted = rounded(self.plain), rounded(self.drafted)
        more = "+" if self.at_least else ""
        return f"{plain}{more}" if plain == drafted else f"{plain} → {drafted}{more}"

    @property
    def words(self) -> str:
        """Both speeds in words."""
        plain, drafted = rounded(self.plain), rounded(self.drafted)
        about = "at least" if self.at_least else "about"
        if plain == drafted:
            return f"{about} {plain} tokens/s"
        return f"{about} {plain} tokens/s plain and {drafted} with drafting"


def rounded(speed: float) -> str:
    """A speed with as many digits as an estimate deserves."""
    return f"{speed:.1f}" if speed < 3 else f"{speed:.0f}"


def expected(machine: MachineSpeed, memory: Memory, reads: Reads) -> Expected:
    """The expected speed of a pair that fits, with the draft length that is best here."""
    weights = reads.target_bytes + reads.draft_bytes
    on_gpu = min(1.0, memory.gpu_usable / max(1, weights)) if machine.gpu else 0.0
    per_byte = machine.curve(reads.kind, on_gpu)
    curve = {n: seconds * reads.read(n) for n, seconds in per_byte.items()}
    plain = 1 / curve[1]
    if not (reads.acceptance and reads.draft_bytes):
        return Expected(plain, plain, machine.disturbed)
    draft_s = reads.draft_bytes * per_byte[1]
    rates = (
        _emitted(reads.acceptance, k) / (_at(curve, k + 1) + k * draft_s) for k in range(max(curve))
    )
    return Expected(plain, max(rates), machine.disturbed)


def _emitted(acceptance: float, k: int) -> float:
    """Expected tokens of a round that drafts ``k``: Leviathan et al. 2023, equation 1."""
    return sum(acceptance**i for i in range(k + 1))


def _at(curve: Mapping[int, float], width: int) -> float:
    """Seconds of a pass; between measured widths on a straight line. An interface estimates too,
    which does not load numpy.
    """
    below = max(n for n in curve if n <= width)
    above = min(n for n in curve if n >= width)
    share = (width - below) / (above - below) if above > below else 0.0
    return curve[below] + share * (curve[above] - curve[below])
