"""Which layers of a target make a draft that pays, by measurement; `draft_from_target` makes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.bench.lab import Lab
from localspec.bench.speedup import Answered, answer
from localspec.bench.workloads import WORKLOADS
from localspec.core.interrupt import Cancelled
from localspec.core.logits import Sampling
from localspec.core.options import NO_DRAFT, Options
from localspec.core.round_counts import RoundCounts
from localspec.core.speed_formula import best_fixed
from localspec.llama.draft_from_target import layer_count, make
from localspec.runtime import Runtime

_K = 4
_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Tried:
    """A set of layers as a draft."""

    layers: tuple[int, ...]
    """Layers that are kept."""
    acceptance: tuple[float, ...]
    """Share of accepted tokens by position in the draft."""
    cost: float
    """Seconds for a drafted token."""
    gain: float
    """Speed by plain decoding's, at the best draft length; 1 where nothing is gained."""


def candidates(count: int) -> list[tuple[int, ...]]:
    """Early exits after a quarter, half and three quarters, and every other layer with both ends.

    The last layer is always among one of them: targets that were not trained to leave early need
    it, since it writes for the head.
    """
    exits = {max(1, round(count * share)) for share in (0.25, 0.5, 0.75)}
    found = [tuple(range(n)) for n in sorted(exits) if n < count]
    if count >= 4:
        found.append(tuple(sorted({*range(0, count, 2), count - 1})))
        found.append((*range(count // 2), count - 1))
    return found


def search(
    model: Path, folder: Path, on_tried: Callable[[Tried], None], cancelled: Cancelled
) -> list[Tried]:
    """Measure the candidates on a few prompts at temperature 0, the best one first.

    Raises:
        LocalspecError, Interrupted
    """
    with Runtime.open(Options(model=str(model), draft=NO_DRAFT, drafter=("suffix",))) as runtime:
        costs = Lab(runtime).measure_costs()
    curve = costs.curve() if costs is not None else {1: 1.0}
    found = []
    for layers in candidates(layer_count(model)):
        where = folder / "candidate.gguf"
        make(model, where, bits=None, layers=layers, cancelled=cancelled)
        options = Options(model=str(model), draft=str(where), drafter=("model",), draft_max=_K)
        with Runtime.open(options, cancelled=cancelled) as runtime:
            replies = [
                answer(runtime, w.prompts[0], Sampling(temperature=0), 1, _TOKENS, draft=True)
                for w in WORKLOADS
            ]
        where.unlink()
        tried = _tried(layers, replies, curve)
        on_tried(tried)
        found.append(tried)
    return sorted(found, key=lambda tried: -tried.gain)


def _tried(layers: tuple[int, ...], replies: Sequence[Answered], curve: dict[int, float]) -> Tried:
    rounds = [r for a in replies for r in a.rounds if r.drafted]
    positions = RoundCounts.of(rounds).per_position
    seconds = sum(a.reply.stats.draft_seconds for a in replies)
    cost = seconds / max(1, sum(r.drafted for r in rounds))
    gain, _ = best_fixed(positions, curve, cost)
    return Tried(layers, positions, cost, gain)
