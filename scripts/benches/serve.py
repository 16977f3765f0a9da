"""`localspec serve` as its clients see it, and llama-server on the same files beside it.

k clients ask one question after another, all over POST /v1/chat/completions with a stream. Printed
are tokens per second of all together, and p50, p95 and p99 of the seconds to the first token and of
the milliseconds per token, and the processor time that the server and its engine take per token,
at temperature 0 and 1. The servers of one row are up at the same time and asked in turns,
`--repeats` times; the rows show medians.

With --soak MINUTES, the largest number of clients ask all the time, while others connect, send a
part of a request and leave at random. Printed are the memory of the server and its engine over time
and the times to tokens; requests that fail end it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx2
import psutil

from benches.shared.replies import by_turns, workloads
from benches.shared.servers import (
    answers,
    chunks,
    free_port,
    own_command,
    own_environment,
    started,
)
from localspec.bench.workloads import WORKLOADS
from localspec.core.files.paths import cache_dir
from localspec.llama import library

PROMPTS = by_turns(WORKLOADS)
"""Or those of ``--texts``."""
_ANSWER_S = 600.0
_EQUAL = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""No truncation, so that both servers sample from the same distribution."""

_FRESH = httpx2.Limits(max_keepalive_connections=0)
"""llama-server closes idle connections, at times just as one is used again."""


@dataclass(frozen=True)
class Asked:
    """One reply as its client saw it; seconds."""

    emitted: int
    first: float
    """Seconds from the request to the first text."""
    per_token: float
    """Seconds for a token, from the first text to the last; 0 for a single one."""
    drafted: int
    accepted: int


@dataclass
class Side:
    """A server that is measured."""

    name: str
    command: list[str]
    url: str
    runs: list[tuple[float, list[Asked]]] = field(default_factory=list)
    """Seconds of each run, and its replies."""
    pid: int = 0
    """Process id of the server while it runs."""
    server_cpu: float = 0.0
    """Seconds of processor time of the server's process in the runs."""
    engine_cpu: float = 0.0
    """Seconds of processor time of its child processes: the engine; 0 where the server decodes."""

    def clear(self) -> None:
        """Forget the runs."""
        self.runs.clear()
        self.server_cpu = self.engine_cpu = 0.0


def ask(http: httpx2.Client, prompt: str, temperature: float, seed: int, tokens: int) -> Asked:
    """Stream one reply.

    Raises:
        SystemExit: the server does not answer as it should.
    """
    body = {
        "messages": [{"role": "user", "content": prompt}],
        "temperature": temperature,
        "seed": seed,
        "max_tokens": tokens,
        "stream_options": {"include_usage": True},
        **_EQUAL,
    }
    began = time.perf_counter()
    first = last = None
    usage, timings = None, {}
    for moment, chunk in chunks(http, body):
        if any(c["delta"].get("content") for c in chunk["choices"]):
            last = moment
            first = first or last
        usage = chunk.get("usage") or usage
        timings = chunk.get("timings") or timings
    ended = time.perf_counter()
    if usage is None:
        raise SystemExit("the server sent no usage")
    emitted = int(usage["completion_tokens"])
    span = (last - first) if first is not None and last is not None else 0.0
    return Asked(
        emitted=emitted,
        first=(first or ended) - began,
        per_token=span / (emitted - 1) if emitted > 1 else 0.0,
        drafted=int(timings.get("draft_n", 0)),
        accepted=int(timings.get("draft_n_accepted", 0)),
    )


def clients(side: Side, n: int, turns: int, temperature: float, tokens: int) -> None:
    """Have n clients ask ``turns`` questions each, and note the run."""
    found: list[Asked] = []
    errors: list[BaseException] = []

    def client(number: int) -> None:
        try:
            with httpx2.Client(base_url=side.url, timeout=_ANSWER_S, limits=_FRESH) as http:
                for turn in range(turns):
                    at = number + turn * n
                    prompt = PROMPTS[at % len(PROMPTS)]
                    found.append(ask(http, prompt, temperature, at, tokens))
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    server_before, engine_before = _processor_seconds(side.pid)
    threads = [threading.Thread(target=client, args=(i,)) for i in range(n)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    side.runs.append((time.perf_counter() - began, found))
    server_after, engine_after = _processor_seconds(side.pid)
    side.server_cpu += server_after - server_before
    side.engine_cpu += engine_after - engine_before


def _processor_seconds(pid: int) -> tuple[float, float]:
    """Processor time so far of a server's process, and of its children."""

    def seconds(process: psutil.Process) -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    server = psutil.Process(pid)
    return seconds(server), sum(map(seconds, server.children(recursive=True)))


def sides(asked: argparse.Namespace, n: int) -> list[Side]:
    """The servers of one row, not started."""
    found = []
    modes: list[tuple[str, list[str]]] = [("plain", ["--drafter", "off"]), ("drafts", [])]
    for mode, flags in modes:
        port = free_port()
        command = own_command("serve", str(asked.target))
        command += ["-d", str(asked.draft), "--jobs", str(n), "--ctx", str(asked.ctx)]
        command += ["--threads", str(asked.threads), "--port", str(port), "--offline", *flags]
        command += ["--draft-memory", "0"]  # the same prompts are asked again and again
        found.append(Side(f"localspec {mode}", command, f"http://127.0.0.1:{port}"))
    if asked.against:
        for length in (0, *map(int, asked.drafts.split(","))):
            port = free_port()
            command = [asked.against, "--host", "127.0.0.1", "--port", str(port), "--jinja"]
            command += ["-m", str(asked.target), "-np", str(n), "-c", str(asked.ctx * n)]
            command += ["-t", str(asked.threads), "-tb", str(asked.threads)]
            if length:
                command += ["-md", str(asked.draft), "-td", str(asked.threads)]
                command += ["--spec-type", "draft-simple", "--spec-draft-n-max", str(length)]
            mode = f"drafts of {length}" if length else "plain"
            found.append(Side(f"llama-server {mode}", command, f"http://127.0.0.1:{port}"))
    return found


@contextlib.contextmanager
def running(side: Side) -> Iterator[None]:
    """Run a server until the block ends.

    Raises:
        SystemExit: it does not start.
    """
    own = "localspec" in side.command
    environment = own_environment() if own else dict(library.environment_of_others())
    with started(side.command, lambda _: answers(side.url), environment) as (side.pid, _):
        yield


def quantile(values: Sequence[float], q: float) -> float:
    """The value below which a part q of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def row(side: Side, n: int, temperature: float) -> dict[str, object]:
    """The figures of a side."""
    replies = [reply for _, found in side.runs for reply in found]
    speeds = [sum(reply.emitted for reply in found) / seconds for seconds, found in side.runs]
    per_token = [reply.per_token * 1000 for reply in replies if reply.per_token]
    first = [reply.first for reply in replies]
    drafted = sum(reply.drafted for reply in replies)
    accepted = sum(reply.accepted for reply in replies)
    emitted = max(1, sum(reply.emitted for reply in replies))
    return {
        "side": side.name,
        "clients": n,
        "temperature": temperature,
        "tokens_per_second": statistics.median(speeds),
        "first_s": [quantile(first, q) for q in (0.5, 0.95, 0.99)],
        "per_token_ms": [quantile(per_token, q) for q in (0.5, 0.95, 0.99)],
        "accepted_of_drafted": accepted / drafted if drafted else None,
        "server_cpu_ms_per_token": 1000 * side.server_cpu / emitted,
        "engine_cpu_ms_per_token": 1000 * side.engine_cpu / emitted,
        "replies": [asdict(reply) for reply in replies],
    }


def compare(asked: argparse.Namespace) -> list[dict[str, object]]:
    """Measure and print all rows."""
    rows = []
    head = "clients  T  server                      tokens/s   first s p50/p95/p99     ms/token"
    head += "         CPU ms/token of server, engine"
    print(head)
    for n in map(int, asked.clients.split(",")):
        with contextlib.ExitStack() as stack:
            up = sides(asked, n)
            for side in up:
                stack.enter_context(running(side))
                clients(side, n, 1, 0.0, asked.tokens)  # not counted: costs are measured
            for temperature in map(float, asked.temperatures.split(",")):
                for side in up:
                    side.clear()
                for _ in range(asked.repeats):
                    for side in up:
                        clients(side, n, asked.turns, temperature, asked.tokens)
                for side in up:
                    found = row(side, n, temperature)
                    rows.append(found)
                    print(_line(found), flush=True)
    return rows


def _line(found: dict[str, object]) -> str:
    first, per_token = found["first_s"], found["per_token_ms"]
    assert isinstance(first, list)
    assert isinstance(per_token, list)
    rate = found["accepted_of_drafted"]
    return (
        f"{found['clients']:7} {found['temperature']:2g}  {found['side']:26} "
        f"{found['tokens_per_second']:9.1f}   "
        f"{'/'.join(f'{value:.3f}' for value in first)}   "
        f"{'/'.join(f'{value:.1f}' for value in per_token)}   "
        f"{found['server_cpu_ms_per_token']:.2f}, {found['engine_cpu_ms_per_token']:.2f}"
        f"{'' if rate is None else f'   accepted {rate:.2f} of drafted'}"
    )


def soak(asked: argparse.Namespace) -> dict[str, object]:
    """Full load, and clients that come and go."""
    n = max(map(int, asked.clients.split(",")))
    side = sides(asked, n)[1]
    # What was read before would fill its share of the memory, and hide what is lost.
    side.command += ["--cache-memory", "64"]
    end = time.monotonic() + asked.soak * 60
    chance, dropped = random.Random(1), 0
    memory: list[tuple[float, float, float]] = []
    with running(side):
        clients(side, n, 2, 1.0, asked.tokens)
        side.clear()

        def load() -> None:
            while time.monotonic() < end:
                clients(side, n, 2, 1.0, asked.tokens)

        loading = threading.Thread(target=load)
        loading.start()
        began = last = time.monotonic()
        memory.append((0.0, *_memory(side.pid)))
        while loading.is_alive():
            pause = asked.soak * 60 / asked.drops
            time.sleep(pause)
            if time.monotonic() < end:
                _drop(side.url, chance, asked.tokens)
                dropped += 1
            if time.monotonic() - last > asked.soak * 6:
                last = time.monotonic()
                memory.append((last - began, *_memory(side.pid)))
                print("{:6.0f} s  server {:.1f} MB, engine {:.1f} MB".format(*memory[-1]))
        loading.join()
        metrics = httpx2.get(f"{side.url}/metrics").text
    running_now = next(line for line in metrics.splitlines() if "requests_processing 0" in line)
    found = row(side, n, 1.0)
    print(f"{dropped} connections dropped, {running_now}")
    print(_line(found))
    return found | {"memory": memory, "dropped": dropped}


def _drop(url: str, chance: random.Random, tokens: int) -> None:
    """Connect, send some of a request, read some of the answer, and leave."""
    address = httpx2.URL(url)
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": chance.choice(PROMPTS)}],
            "stream": chance.random() < 0.5,
            "max_tokens": tokens,
        }
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}"
    raw = head.encode() + b"\r\n\r\n" + body
    with socket.create_connection((address.host, address.port or 80), timeout=5) as peer:
        peer.sendall(raw[: chance.randrange(2 * len(raw))])
        if chance.random() < 0.5:
            peer.settimeout(chance.random() / 5)
            with contextlib.suppress(TimeoutError):
                peer.recv(chance.randrange(1, 4096))


def _memory(pid: int) -> tuple[float, float]:
    """MB that the server and its engine have for themselves."""
    server = psutil.Process(pid)
    engine = sum(_own(child) for child in server.children(recursive=True))
    return _own(server), engine


def _own(process: psutil.Process) -> float:
    info = process.memory_info()
    return float(info.rss - getattr(info, "shared", 0)) / 1e6


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = cache_dir() / "bench"
    parser.add_argument("--target", type=Path, default=folder / "target-1gb.gguf")
    parser.add_argument("--draft", type=Path, default=folder / "draft-0.06gb.gguf")
    parser.add_argument("--against", default="", metavar="PATH", help="llama-server, too")
    parser.add_argument("--drafts", default="4,8", help="draft lengths of llama-server, by commas")
    parser.add_argument("--clients", default="1,4,8", help="by commas")
    parser.add_argument("--temperatures", default="0,1", help="by commas")
    parser.add_argument("--turns", type=int, default=2, help="questions of each client in a run")
    parser.add_argument("--repeats", type=int, default=3, help="runs, in turns")
    parser.add_argument("-n", "--tokens", type=int, default=96, help="tokens of a reply at most")
    parser.add_argument("--ctx", type=int, default=768, help="tokens of each context")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="full load, instead")
    parser.add_argument("--drops", type=int, default=1000, help="connections dropped in --soak")
    parser.add_argument(
        "--texts", type=Path, help="other prompts: a file of scripts/train_long_pair"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked = parser.parse_args()
    for path in (asked.target, asked.draft):
        if not path.is_file():
            raise SystemExit(f"{path} does not exist; scripts/bench make_pair makes a pair")
    if asked.texts is not None:
        PROMPTS[:] = by_turns(workloads(asked.texts))
    found: object = soak(asked) if asked.soak else compare(asked)
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
