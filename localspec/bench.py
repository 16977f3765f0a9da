"""Plain against speculative decoding, side by side in one process: what `localspec bench` does.

Every prompt is answered plainly and with drafting, in turns that alternate, so that a machine whose
speed drifts harms both alike. Under `match` both replies are the same text, and the ratio of their
decoding times is the speed-up; the prompt's reading is not part of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.events import Reply
from localspec.runtime import Runtime
from localspec.sampling import Sampling
from localspec.verification import answer
from localspec.workloads import Workload

_NOISY = 0.15
"""Spread of the plain speeds, relative to their median, beyond which nothing is concluded."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One workload at one temperature."""

    workload: str
    temperature: float
    ratios: tuple[float, ...]
    """Per prompt: speed with drafting by plain speed, tokens a second."""
    plain_speed: float
    """Median, tokens a second."""
    speed: float
    acceptance: float
    tokens_per_round: float
    per_position: tuple[float, ...]
    outside: float
    """Share of the drafted replies' time that is neither drafting nor the target's passes."""
    parked: bool
    """Whether the policy ended up parked."""

    @property
    def ratio(self) -> float:
        """Median of the ratios."""
        return statistics.median(self.ratios)


@dataclass(frozen=True, slots=True)
class Bench:
    """All workloads."""

    results: tuple[Measured, ...]
    spread: float
    """Of plain speeds over repeated runs of one prompt: (largest - smallest) / median."""

    @property
    def noisy(self) -> bool:
        """Whether the machine is too restless to conclude anything."""
        return self.spread > _NOISY


def bench(
    runtime: Runtime,
    workloads: Sequence[Workload],
    temperatures: Sequence[float],
    *,
    max_tokens: int,
    on_progress: Callable[[str], None] | None = None,
) -> Bench:
    """Measure; ``on_progress`` is told what is being measured.

    Raises:
        LocalspecError: a reply failed.
    """
    spread = _spread(runtime, workloads[0].prompts[0], max_tokens)
    results = []
    for temperature in temperatures:
        sampling = Sampling(temperature=temperature)
        for workload in workloads:
            if on_progress is not None:
                on_progress(f"{workload.name}, temperature {temperature:g}")
            pairs = []
            for i, prompt in enumerate(workload.prompts):
                order = (False, True) if i % 2 == 0 else (True, False)
                replies = {
                    draft: answer(runtime, prompt, sampling, i, max_tokens, draft=draft)
                    for draft in order
                }
                pairs.append((replies[False], replies[True]))
            results.append(_measured(workload, temperature, pairs))
    return Bench(tuple(results), spread)


def _spread(runtime: Runtime, prompt: str, max_tokens: int) -> float:
    """Warm up, then see how much plain speed varies."""
    sampling = Sampling(temperature=0)
    answer(runtime, prompt, sampling, 0, max_tokens, draft=True)
    speeds = [
        answer(runtime, prompt, sampling, 0, max_tokens, draft=False).stats.tokens_per_second
        for _ in range(4)
    ]
    return (max(speeds) - min(speeds)) / statistics.median(speeds)


def _measured(
    workload: Workload, temperature: float, pairs: Sequence[tuple[Reply, Reply]]
) -> Measured:
    drafted = [d.stats for _, d in pairs]
    verified = sum(s.verified for s in drafted)
    seconds = sum(s.decode_seconds for s in drafted)
    inside = sum(s.draft_seconds + s.verify_seconds for s in drafted)
    depth = max(len(s.per_position) for s in drafted)
    return Measured(
        workload=workload.name,
        temperature=temperature,
        ratios=tuple(
            d.stats.tokens_per_second / p.stats.tokens_per_second
            for p, d in pairs
            if p.stats.tokens_per_second > 0
        ),
        plain_speed=statistics.median(p.stats.tokens_per_second for p, _ in pairs),
        speed=statistics.median(s.tokens_per_second for s in drafted),
        acceptance=sum(s.accepted for s in drafted) / verified if verified else 0.0,
        tokens_per_round=sum(s.emitted for s in drafted) / sum(s.rounds for s in drafted),
        per_position=tuple(
            statistics.mean(s.per_position[i] for s in drafted if len(s.per_position) > i)
            for i in range(depth)
        ),
        outside=1 - inside / seconds if seconds else 0.0,
        parked=drafted[-1].speculation.state == "parked",
    )
