"""The controller beside the draft length that was best for each kind of work, which is known only
afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from policy_lab.bounds import LENGTHS, fixed
from policy_lab.curves import Curve, Disturbance
from policy_lab.evidence import Recorded
from policy_lab.report import session
from policy_lab.world import Running


@dataclass(frozen=True, slots=True)
class Beside:
    """Some replies of a session, by the controller and with one draft length."""

    workload: str
    temperature: float
    """nan: all of them."""
    tokens: int
    ours: float
    """Speed by plain decoding."""
    fixed: float
    """The same with `length`, at least 1."""
    length: int
    """The best one of `LENGTHS`, or 0: plain decoding."""

    @classmethod
    def of(
        cls, workload: str, temperature: float, played: Sequence[Running],
        sources: Sequence[str], curve: Curve,
    ) -> Beside:  # fmt: skip
        """Compare these replies."""
        tokens = sum(p.at for p in played)
        times = {0: float(tokens)} | {
            k: sum(fixed(p.reply, sources, curve, k) for p in played) for k in LENGTHS
        }
        length = min(times, key=lambda k: times[k])
        ours = tokens / sum(p.units for p in played)
        return cls(workload, temperature, tokens, ours, tokens / times[length], length)

    @property
    def ratio(self) -> float:
        """Ours by the best fixed length."""
        return self.ours / self.fixed

    def __str__(self) -> str:
        t = "" if math.isnan(self.temperature) else f"{self.temperature:g}"
        return (
            f"{self.workload:26} {t:>3} {self.tokens:6} {self.ours:6.2f} "
            f"{self.fixed:6.2f} {self.length:3} {self.ratio:6.2f}"
        )


HEADER = f"{'workload':26}   T tokens   ours  fixed   K  ratio"


def by_workload(
    replies: Sequence[Recorded], curve: Curve, disturbance: Disturbance, sources: Sequence[str]
) -> list[Beside]:
    """All of what `session` plays, then every kind of work and temperature; each with the fixed
    length that is best for it.
    """
    played = session(replies, curve, disturbance, sources)

    def kind(p: Running) -> tuple[str, float]:
        return p.reply.workload, p.reply.temperature

    found = [Beside.of("the whole session", math.nan, played, sources, curve)]
    for (workload, temperature), some in groupby(sorted(played, key=kind), key=kind):
        found.append(Beside.of(workload, temperature, list(some), sources, curve))
    return found


def lines(
    replies: Sequence[Recorded], curve: Curve, disturbance: Disturbance, sources: Sequence[str]
) -> Iterator[str]:
    """The report of one machine and one set of drafters."""
    whole, *kinds = by_workload(replies, curve, disturbance, sources)
    yield f"{curve.name}, {disturbance.name}, {' + '.join(sources)}"
    yield f"  {HEADER}"
    for found in (whole, *kinds):
        yield f"  {found}"
    ratios = [found.ratio for found in kinds]
    mean = math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))
    yield f"  geometric mean of the kinds {mean:.3f}, least {min(ratios):.3f}"
