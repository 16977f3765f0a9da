"""A target on a worker far away: speed, draft length and traffic by the delay of the network.

scripts/bench rpc                            the embedded pair, a worker on this machine
scripts/bench rpc -m FILE.gguf -d DRAFT.gguf --delays 0,5,20 --turns 3
scripts/bench rpc --rpc HOST:PORT            a worker elsewhere; its own delay is added
scripts/bench rpc --workers 2                layers on that many workers, each so far away

A proxy in front of the worker delays each part by so many milliseconds each way. For each delay the
pair is loaded anew, so that the costs of its passes are measured with the delay in them. Prompts
are answered plainly and with drafts in turn; speeds are medians over prompts and turns. t(n) is the
controller's cost of a pass over n tokens. "would be" is tokens per round x plain: the speed where
the round trip is all that a pass costs. Traffic is that of plain passes and of drafting ones, by
the pass.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benches.shared.servers import running
from localspec import GREEDY, Message, Options, Reply, ReplyRequest, Runtime
from localspec.bench.lab import Lab
from localspec.bench.proxy import Proxy
from localspec.core.endpoint import Endpoint, endpoints
from localspec.core.errors import LocalspecError

_PROMPTS = (
    "What is 17 plus 25?",
    "Write a Python function that adds two numbers.",
    "List five animals.",
    "Rewrite this politely: send me the file now.",
    "Write a JSON object about a dog.",
    "Count from 1 to 20.",
)
_WIDTHS = (1, 4, 16)


@dataclass(frozen=True)
class Row:
    """The measurements with one delay."""

    delay_ms: float
    """Each way."""
    pass_ms: list[float]
    """t(1), t(4) and t(16)."""
    plain: float
    """Tokens a second."""
    drafted: float
    """Tokens a second."""
    tokens_per_round: float
    mean_k: float
    """Drafted tokens a round, over rounds that drafted or not."""
    sent_plain: int
    """Bytes to the worker for a plain pass."""
    received_plain: int
    sent_drafted: int
    received_drafted: int
    identical: bool
    """Whether drafted and plain replies are equal."""

    @property
    def line(self) -> str:
        """A row of the table."""
        times = " / ".join(f"{ms:.1f}" for ms in self.pass_ms)
        ratio, bound = self.drafted / self.plain, self.plain * self.tokens_per_round
        traffic = f"{self.sent_plain / 1e3:.1f} + {self.received_plain / 1e3:.1f}"
        each = f"{self.sent_drafted / 1e3:.1f} + {self.received_drafted / 1e3:.1f}"
        return (
            f"| {self.delay_ms:g} | {times} | {self.plain:.1f} | {self.drafted:.1f} | "
            f"{ratio:.2f} | {self.tokens_per_round:.2f} | {bound:.1f} | {self.mean_k:.1f} | "
            f"{traffic} | {each} | {'yes' if self.identical else 'NO'} |"
        )


TITLES = (
    "| delay each way, ms | t(1) / t(4) / t(16), ms | plain, tok/s | drafted, tok/s | ratio | "
    "tokens per round | would be | mean K | kB a plain pass, there + back | kB a drafting pass | "
    "same text |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", default="demo")
    parser.add_argument("-d", "--draft")
    parser.add_argument("--drafter", default="model", help="one that does not copy from the text")
    parser.add_argument("--rpc", help="workers that run already")
    parser.add_argument("--workers", type=int, default=1, help="workers to start here")
    parser.add_argument("--delays", default="0,5,20", help="milliseconds each way")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("-n", "--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=1, help="threads of each worker here")
    parser.add_argument("--json", type=Path, help="write the rows there too")
    given = parser.parse_args()
    rows = []
    try:
        with contextlib.ExitStack() as stack:
            flags = ("--bind", "127.0.0.1:0", "--threads", str(given.threads))
            found = endpoints(given.rpc) or tuple(
                Endpoint.parse(
                    stack.enter_context(running("worker", *flags, address=r"worker at (\S+) "))
                )
                for _ in range(given.workers)
            )
            print(TITLES, flush=True)
            for delay in map(float, given.delays.split(",")):
                row = _measured(found, delay, given)
                rows.append(row)
                print(row.line, flush=True)
    except LocalspecError as error:
        sys.exit(str(error))
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows]))


def _measured(found: Sequence[Endpoint], delay_ms: float, given: argparse.Namespace) -> Row:
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(Proxy((e.host, e.port), delay_ms / 1e3)) for e in found]
        rpc = ",".join(proxy.name for proxy in proxies)
        options = Options(given.model, draft=given.draft, drafter=(given.drafter,), rpc=rpc)
        runtime = stack.enter_context(Runtime.open(options))
        plain, drafted = _Side(proxies), _Side(proxies)
        same = True
        for turn in range(given.turns + 1):  # the first is to warm up
            for prompt in _PROMPTS:
                request = ReplyRequest(
                    (Message("user", prompt),), sampling=GREEDY, max_tokens=given.tokens, seed=1
                )
                one = plain.answer(runtime, request, draft=False, counts=turn > 0)
                two = drafted.answer(runtime, request, draft=True, counts=turn > 0)
                same = same and one.tokens == two.tokens
        costs = Lab(runtime).costs()
        assert costs is not None  # drafts are automatic
        return Row(
            delay_ms,
            [round(1e3 * costs.verify(n), 2) for n in _WIDTHS],
            statistics.median(plain.speeds),
            statistics.median(drafted.speeds),
            drafted.emitted / drafted.rounds,
            drafted.drafted / drafted.rounds,
            *plain.traffic,
            *drafted.traffic,
            same,
        )


class _Side:
    """Replies of one kind."""

    def __init__(self, proxies: Sequence[Proxy]) -> None:
        self._proxies = proxies
        self.speeds: list[float] = []
        self.emitted = self.rounds = self.drafted = 0
        self._sent = self._received = 0

    def answer(
        self, runtime: Runtime, request: ReplyRequest, *, draft: bool, counts: bool
    ) -> Reply:
        before = self._passed()
        reply = runtime.answer(replace(request, draft=draft))
        after = self._passed()
        if counts:
            stats = reply.stats
            self.speeds.append(stats.tokens_per_second)
            self.emitted += stats.emitted
            self.rounds += stats.rounds
            self.drafted += stats.drafted
            self._sent += after[0] - before[0]
            self._received += after[1] - before[1]
        return reply

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes there and back for a pass; prompts were in the cache."""
        return self._sent // self.rounds, self._received // self.rounds

    def _passed(self) -> tuple[int, int]:
        return (
            sum(proxy.traffic.to_server for proxy in self._proxies),
            sum(proxy.traffic.to_client for proxy in self._proxies),
        )


if __name__ == "__main__":
    main()
