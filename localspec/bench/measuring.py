"""Speed of a remote engine on our workloads: what `localspec bench --url` does.

Seconds are the engine's own where it tells them with every reply, else those of the whole request
from this end. When tokens arrive is never divided by: they come in bursts.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence

from localspec.bench.workloads import Step, Workload
from localspec.core.errors import Interrupted, LocalspecError
from localspec.core.events import Finished, Message, Token
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling
from localspec.remote.blocking import BlockingClient
from localspec.remote.client import RemoteClient
from localspec.remote.measured import RemoteMeasured, Timed, failed, measured


class RemoteMeasuring:
    """A measurement that goes on reply by reply."""

    def __init__(
        self,
        engine: BlockingClient[RemoteClient],
        workloads: Sequence[Workload],
        temperatures: Sequence[float],
        *,
        max_tokens: int,
        sampling: Sampling | None = None,
        plain: BlockingClient[RemoteClient] | None = None,
    ) -> None:
        """``plain`` is a server of the same model without speculation; without one, the engine
        itself decodes plainly, if it can switch. ``sampling`` holds for all temperatures.
        """
        self._engine, self._plain = engine, plain
        self._workloads, self._temperatures = workloads, temperatures
        self._max_tokens = max_tokens
        self._sampling = sampling or Sampling()
        found = engine.client.found
        self.switches = found is not None and found.dialect.switches
        self.results: list[RemoteMeasured] = []

    @property
    def compares(self) -> bool:
        """Whether plain decoding is measured too."""
        return self._plain is not None or self.switches

    def steps(self) -> Iterator[Step]:
        """Measure; each reply before it is made. What fails is a result too.

        Raises:
            Interrupted: the user stops it.
        """
        for workload in self._workloads:
            for temperature in self._temperatures:
                pairs = []
                for number, prompt in enumerate(workload.prompts):
                    yield Step(workload.name, temperature, number, len(workload.prompts))
                    try:
                        pairs.append(self._pair(prompt, temperature, number))
                    except Interrupted:
                        raise
                    except LocalspecError as error:
                        self.results.append(failed(workload.name, temperature, pairs, str(error)))
                        break
                else:
                    self.results.append(measured(workload.name, temperature, pairs))

    def _pair(self, prompt: str, temperature: float, seed: int) -> tuple[Timed, Timed | None]:
        """A reply, and the same one made plainly, before it or behind it in turns."""
        request = ReplyRequest(
            messages=(Message("user", prompt),),
            sampling=dataclasses.replace(self._sampling, temperature=temperature),
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
    """A reply and its seconds.

    Raises:
        Interrupted: the user ended it; what there is of it is no measurement.
        LocalspecError: it failed.
    """
    began = time.perf_counter()
    first: float | None = None
    for event in engine.submit(request):
        now = time.perf_counter()
        if isinstance(event, Token):
            first = now if first is None else first
            last = now
        elif isinstance(event, Finished):
            if event.reply.finish_reason == "interrupt":
                raise Interrupted("interrupted; what was measured is incomplete")
            stats = event.reply.stats
            ended = now if first is None else last
    return Timed((ended if first is None else first) - began, ended - began, stats)
