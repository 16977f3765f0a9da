"""Drafting by plain decoding with several requests at once, in waves that take turns.

A wave is one request of each client, all submitted at the same moment; each wave is played with
drafting and without, in one process and on one loaded pair, so that both see the same machine. A
ratio is tokens per second with drafting by those without, the reading of prompts included.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from localspec import Finished, Message, Options, Reply, ReplyRequest, Runtime, Sampling
from localspec.bench.workloads import WORKLOADS
from localspec.core.errors import LocalspecError
from localspec.generation.reply_stream import ReplyStream

PROMPTS = [kind.prompts[at] for at in range(3) for kind in WORKLOADS]
"""One of each workload, then the next of each."""


@dataclass(frozen=True)
class Wave:
    """The replies of one wave."""

    emitted: int
    rounds: int
    seconds: float

    @property
    def speed(self) -> float:
        """Tokens per second of all requests together."""
        return self.emitted / self.seconds


class Company:
    """Requests that run at the same time on one runtime."""

    def __init__(self, runtime: Runtime, clients: int, tokens: int, temperature: float) -> None:
        self._runtime = runtime
        self._clients = clients
        self._tokens = tokens
        self._sampling = Sampling(temperature=temperature)

    def pairs(self, waves: int) -> Iterator[tuple[Wave, Wave]]:
        """Each wave without drafting and with it; which is first changes from wave to wave."""
        self._wave(waves, draft=False)  # not counted: threads start
        for number in range(waves):
            order = (False, True) if number % 2 else (True, False)
            found = {draft: self._wave(number, draft=draft) for draft in order}
            yield found[False], found[True]

    def _wave(self, number: int, *, draft: bool) -> Wave:
        self._runtime.forget()
        began = time.perf_counter()
        streams = [
            self._runtime.submit(
                ReplyRequest(
                    (Message("user", PROMPTS[(number * self._clients + i) % len(PROMPTS)]),),
                    sampling=self._sampling,
                    seed=1000 * number + i,
                    max_tokens=self._tokens,
                    draft=draft,
                )
            )
            for i in range(self._clients)
        ]
        replies = [_last(stream) for stream in streams]
        return Wave(
            sum(reply.stats.emitted for reply in replies),
            sum(reply.stats.rounds for reply in replies),
            time.perf_counter() - began,
        )


def _last(stream: ReplyStream) -> Reply:
    *_, last = stream
    assert isinstance(last, Finished)
    return last.reply


def main() -> int:
    """Print a row for each number of clients."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target")
    parser.add_argument("--draft", help="the one that belongs to the target unless given")
    parser.add_argument("--requests", default="1,2,4,8", help="clients, by commas")
    parser.add_argument("--waves", type=int, default=8)
    parser.add_argument("-n", "--tokens", type=int, default=48, help="most tokens of a reply")
    parser.add_argument("-t", "--temperature", type=float, default=0.7)
    parser.add_argument("--ctx", type=int, default=768)
    asked = parser.parse_args()
    print("clients  plain tok/s  drafting  tokens per round  ratio: median   mean  least")
    try:
        for clients in map(int, asked.requests.split(",")):
            print(_row(asked, clients), flush=True)
    except LocalspecError as error:
        print(f"bench_company: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _row(asked: argparse.Namespace, clients: int) -> str:
    options = Options(
        asked.target, draft=asked.draft, context=asked.ctx, parallel=clients, offline=True
    )
    with Runtime.open(options) as runtime:
        if runtime.info.parallel < clients:
            raise LocalspecError(f"no memory for {clients} requests at a time")
        company = Company(runtime, clients, asked.tokens, asked.temperature)
        found = [*company.pairs(asked.waves)]
    ratios = [drafting.speed / plain.speed for plain, drafting in found]
    plain, drafting = (
        sum(w.emitted for w in side) / sum(w.seconds for w in side)
        for side in zip(*found, strict=True)
    )
    per_round = sum(w.emitted for _, w in found) / sum(w.rounds for _, w in found)
    return (
        f"{clients:7}  {plain:11.1f}  {drafting:8.1f}  {per_round:16.2f}  "
        f"{statistics.median(ratios):13.3f}  {statistics.mean(ratios):5.3f}  {min(ratios):5.3f}"
    )


if __name__ == "__main__":
    sys.exit(main())
