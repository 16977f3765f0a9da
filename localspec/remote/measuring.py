"""Speed of a remote engine on our workloads: what `localspec bench --url` does.

Times are those of this end of the wire: from the request to the first token, and from there to the
last one.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localspec.bench.workloads import Workload
from localspec.core.events import Finished, Message, Stats, Token
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling
from localspec.remote.blocking import BlockingClient
from localspec.remote.client import RemoteClient


@dataclass(frozen=True, slots=True)
class Timed:
    """One reply."""

    first_seconds: float
    """Seconds from the request to the first token."""
    speed: float
    """Tokens per second behind the first token; 0 for a single one."""
    stats: Stats


@dataclass(frozen=True, slots=True)
class RemoteMeasured:
    """One workload at one temperature; medians over its prompts."""

    workload: str
    temperature: float
    prompts: int
    tokens: int
    speed: float
    first_seconds: float
    ratio: float | None
    """Speed relative to plain decoding, measured alternately; None where nothing can be plain."""
    drafted: int
    verified: int
    """0 where the engine does not tell."""
    accepted: int
    rounds: int
    reported: bool
    """Whether the engine reports its speculation."""

    @property
    def tokens_per_round(self) -> float | None:
        """Emitted tokens of a round; None where the engine does not tell."""
        return self.tokens / self.rounds if self.reported and self.rounds else None

    @property
    def acceptance(self) -> float | None:
        """Accepted tokens of the verified ones, or of the drafted ones where only those are
        told.
        """
        of = self.verified or self.drafted
        return self.accepted / of if self.reported and of else None


@dataclass(frozen=True, slots=True)
class Step:
    """The reply that is made now."""

    workload: str
    temperature: float
    prompt: int
    prompts: int


class RemoteMeasuring:
    """A measurement that goes on reply by reply."""

    def __init__(
        self,
        engine: BlockingClient[RemoteClient],
        workloads: Sequence[Workload],
        temperatures: Sequence[float],
        *,
        max_tokens: int,
        plain: BlockingClient[RemoteClient] | None = None,
    ) -> None:
        """``plain`` is a server of the same model without speculation; without one, the engine
        itself decodes plainly, if it can switch.
        """
        self._engine, self._plain = engine, plain
        self._workloads, self._temperatures = workloads, temperatures
        self._max_tokens = max_tokens
        found = engine.client.found
        self.switches = found is not None and found.dialect.switches
        self.results: list[RemoteMeasured] = []

    @property
    def compares(self) -> bool:
        """Whether plain decoding is measured too."""
        return self._plain is not None or self.switches

    def steps(self) -> Iterator[Step]:
        """Measure; each reply before it is made.

        Raises:
            LocalspecError: a reply failed.
        """
        for workload in self._workloads:
            for temperature in self._temperatures:
                pairs = []
                for number, prompt in enumerate(workload.prompts):
                    yield Step(workload.name, temperature, number, len(workload.prompts))
                    pairs.append(self._pair(prompt, temperature, number))
                self.results.append(_measured(workload.name, temperature, pairs))

    def _pair(self, prompt: str, temperature: float, seed: int) -> tuple[Timed, Timed | None]:
        """A reply, and the same one made plainly, before it or behind it in turns."""
        request = ReplyRequest(
            messages=(Message("user", prompt),),
            sampling=Sampling(temperature=temperature),
            seed=seed,
            max_tokens=self._max_tokens,
        )
        if not self.compares:
            return _timed(self._engine, request), None
        if seed % 2:
            other = self._made_plainly(request)
            return _timed(self._engine, request), other
        return _timed(self._engine, request), self._made_plainly(request)

    def _made_plainly(self, request: ReplyRequest) -> Timed:
        if self._plain is not None:
            return _timed(self._plain, request)
        return _timed(self._engine, dataclasses.replace(request, draft=False))


def _timed(engine: BlockingClient[RemoteClient], request: ReplyRequest) -> Timed:
    began = time.perf_counter()
    first = last = began
    count = 0
    for event in engine.submit(request):
        now = time.perf_counter()
        if isinstance(event, Token):
            first = now if not count else first
            last, count = now, count + 1
        elif isinstance(event, Finished):
            stats = event.reply.stats
    emitted = max(stats.emitted, count)
    speed = (emitted - 1) / (last - first) if emitted > 1 and last > first else 0.0
    return Timed(first - began, speed, stats)


def _measured(
    workload: str, temperature: float, pairs: Sequence[tuple[Timed, Timed | None]]
) -> RemoteMeasured:
    timed = [one for one, _ in pairs]
    ratios = [
        one.speed / other.speed for one, other in pairs if other is not None and other.speed > 0
    ]
    return RemoteMeasured(
        workload=workload,
        temperature=temperature,
        prompts=len(pairs),
        tokens=sum(one.stats.emitted for one in timed),
        speed=statistics.median(one.speed for one in timed),
        first_seconds=statistics.median(one.first_seconds for one in timed),
        ratio=statistics.median(ratios) if ratios else None,
        drafted=sum(one.stats.drafted for one in timed),
        verified=sum(one.stats.verified for one in timed),
        accepted=sum(one.stats.accepted for one in timed),
        rounds=sum(one.stats.rounds for one in timed),
        reported=all(one.stats.speculation.state != "unknown" for one in timed),
    )


__all__ = ["RemoteMeasured", "RemoteMeasuring", "Step", "Timed"]
