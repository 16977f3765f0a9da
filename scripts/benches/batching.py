"""Several requests at a time: tokens per second of all together, and seconds to the first token.

For 1, 2, 4 and 8 clients, each of which asks one question after another: localspec plain and
drafting, and llama-server (-np N) plain and drafting, on the same files and prompts. Every figure
is taken in a process of its own, in turns; rows are printed as they are measured, and saved: the
same command goes on where it was stopped. The memory that each further request takes is compared
with what the planner predicts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from localspec import Options, ReplyRequest, Runtime, Sampling
from localspec.bench.peers import Question, Setting, llama_server
from localspec.bench.workloads import WORKLOADS
from localspec.core.events import Finished, Message, Token
from localspec.core.files.paths import cache_dir

PROMPTS = [kind.prompts[i] for i in range(3) for kind in WORKLOADS]
_SAMPLING = Sampling(temperature=0.7)


@dataclass(frozen=True)
class Job:
    """One figure to take."""

    target: str
    draft: str
    program: str
    """Path of llama-server; "" for localspec."""
    drafting: bool
    strict: bool
    clients: int
    turns: int
    """Questions of each client."""
    tokens: int
    context: int
    threads: int
    drafts: int
    """Draft length of llama-server; localspec chooses its own."""

    @property
    def name(self) -> str:
        """Name of the program and its mode."""
        program = "llama-server" if self.program else "localspec"
        drafted = f"drafts of {self.drafts}" if self.program else "drafts"
        return f"{program} {drafted if self.drafting else 'plain'}{' strict' * self.strict}"


@dataclass(frozen=True)
class Asked:
    """One reply as its client saw it."""

    emitted: int
    first: float
    """Seconds to the first text."""
    rounds: int
    """0 where unknown."""


@dataclass(frozen=True)
class Figure:
    """The measurements of one process."""

    job: Job
    tokens_per_second: float
    """Sum over all clients."""
    first: float
    """Median seconds from a question to the first text."""
    worst_first: float
    tokens_per_round: float
    """Mean over all clients; 0 where unknown."""
    memory: int
    """Bytes of the process that no file backs, after the replies; 0 where unknown."""
    predicted: int
    """KV cache and compute buffers by the planner; 0 for others."""

    @property
    def row(self) -> str:
        """The figures as a row of the printed table."""
        per_round = f"{self.tokens_per_round:5.2f}" if self.tokens_per_round else "     "
        return (
            f"{self.job.name:28} {self.job.clients:2} {self.tokens_per_second:8.1f} "
            f"{self.first:8.2f} {self.worst_first:8.2f}  {per_round}"
        )


Ask = Callable[[int, str], Asked]
"""Answers a prompt, by a seed."""


def clients(ask: Ask, job: Job) -> tuple[list[Asked], float]:
    """All replies, and the seconds from the first question to the last token."""
    found: list[Asked] = []
    errors: list[BaseException] = []

    def client(number: int) -> None:
        try:
            for turn in range(job.turns):
                at = number + turn * job.clients
                found.append(ask(at, PROMPTS[at % len(PROMPTS)]))
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(job.clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found, time.perf_counter() - began


def _figure(job: Job, ask: Ask, memory: Callable[[], int], predicted: int = 0) -> Figure:
    ask(0, PROMPTS[-1])  # not counted: threads start, costs are measured
    found, seconds = clients(ask, job)
    emitted, rounds = sum(a.emitted for a in found), sum(a.rounds for a in found)
    return Figure(
        job=job,
        tokens_per_second=emitted / seconds,
        first=statistics.median(a.first for a in found),
        worst_first=max(a.first for a in found),
        tokens_per_round=emitted / rounds if rounds else 0.0,
        memory=memory(),
        predicted=predicted,
    )


def ours(job: Job) -> Figure:
    """localspec in this process."""
    options = Options(
        model=job.target,
        draft=job.draft if job.drafting else "none",
        drafter=None if job.drafting else ("off",),
        context=job.context,
        parallel=job.clients,
        threads=job.threads,
        strict=job.strict,
        offline=True,
    )
    with Runtime.open(options) as runtime:
        if runtime.pair.target.sequences < job.clients:
            raise SystemExit(f"no memory for {job.clients} requests at a time")

        def ask(seed: int, prompt: str) -> Asked:
            request = ReplyRequest(
                (Message("user", prompt),),
                sampling=_SAMPLING,
                seed=seed,
                max_tokens=job.tokens,
                draft=job.drafting,
            )
            began, first = time.perf_counter(), None
            for event in runtime.submit(request):
                if first is None and isinstance(event, Token):
                    first = time.perf_counter() - began
                if isinstance(event, Finished):
                    stats = event.reply.stats
            return Asked(stats.emitted, first or time.perf_counter() - began, stats.rounds)

        shares = runtime.pair.parts.fit.shares
        predicted = sum(share.kv + share.compute for share in shares)
        return _figure(job, ask, _own_memory, predicted)


def _own_memory() -> int:
    """Bytes that no file backs."""
    info = psutil.Process().memory_info()
    return int(info.rss - getattr(info, "shared", 0))


def theirs(job: Job) -> Figure:
    """llama-server in a process of its own."""
    flags: tuple[str, ...] = ()
    if job.drafting:
        flags = ("--spec-type", "draft-simple", "--spec-draft-n-max", str(job.drafts))
    draft = Path(job.draft) if job.drafting else None
    options = Options(model=job.target, draft="none", drafter=("off",), context=job.context)
    with Runtime.open(options) as runtime:
        prompts = {p: runtime.encode([Message("user", p)]) for p in PROMPTS}
        setting = Setting(
            target=Path(job.target),
            draft=draft,
            threads=job.threads,
            context=job.context,
            gpu=runtime.info.backend != "cpu",
            ends=runtime.ends,
            parallel=job.clients,
        )
    with llama_server.running(Path(job.program), flags, setting) as server:

        def ask(seed: int, prompt: str) -> Asked:
            question = Question(prompt, prompts[prompt], _SAMPLING, seed, job.tokens)
            found = server.stream(question)
            per_round = found.tokens_per_round
            rounds = round(found.emitted / per_round) if per_round else 0
            return Asked(found.emitted, found.first, rounds)

        return _figure(job, ask, lambda: 0)


def jobs(asked: argparse.Namespace) -> Iterator[Job]:
    """All figures, those that are compared next to each other."""
    modes = [("", False, False), ("", True, False)]
    if asked.strict:
        modes += [("", False, True), ("", True, True)]
    if asked.against:
        modes += [(asked.against, False, False), (asked.against, True, False)]
    for clients_ in map(int, asked.requests.split(",")):
        for program, drafting, strict in modes:
            yield Job(
                target=str(asked.target),
                draft=str(asked.draft),
                program=program,
                drafting=drafting,
                strict=strict,
                clients=clients_,
                turns=asked.turns,
                tokens=asked.tokens,
                context=asked.ctx,
                threads=asked.threads,
                drafts=asked.drafts,
            )


def measured(job: Job) -> Figure:
    """The figure, from a process of its own.

    Raises:
        SystemExit: it failed; with its last line.
    """
    command = [sys.executable, "-P", __file__, "--job", json.dumps(asdict(job))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise SystemExit(f"{job.name}, {job.clients} requests: {last}")
    facts = json.loads(done.stdout.splitlines()[-1])
    return Figure(**facts | {"job": Job(**facts["job"])})


def about_memory(figures: list[Figure]) -> Iterator[str]:
    """Lines about the bytes that each further request takes."""
    for name in dict.fromkeys(f.job.name for f in figures if f.memory):
        rows = sorted((f for f in figures if f.job.name == name), key=lambda f: f.job.clients)
        if len(rows) > 1:
            more = rows[-1].job.clients - rows[0].job.clients
            took = (rows[-1].memory - rows[0].memory) / more / 1e6
            planned = (rows[-1].predicted - rows[0].predicted) / more / 1e6
            yield f"{name}: {took:.1f} MB for each further request, {planned:.1f} MB planned"


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = cache_dir() / "bench"
    parser.add_argument("--target", type=Path, default=folder / "target-1gb.gguf")
    parser.add_argument("--draft", type=Path, default=folder / "draft-0.06gb.gguf")
    parser.add_argument(
        "--against", default="", metavar="PATH", help="llama-server to compare with"
    )
    parser.add_argument("--drafts", type=int, default=3, help="draft length of llama-server")
    parser.add_argument("--requests", default="1,2,4,8", help="clients, by commas")
    parser.add_argument("--turns", type=int, default=2, help="questions of each client")
    parser.add_argument("-n", "--tokens", type=int, default=96, help="tokens of a reply at most")
    parser.add_argument("--ctx", type=int, default=768, help="tokens of each context")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--strict", action="store_true", help="measure strict mode, too")
    parser.add_argument("--out", type=Path, default=Path("batching.jsonl"), help="figures so far")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        job = Job(**json.loads(asked.job))
        print(json.dumps(asdict(theirs(job) if job.program else ours(job))))
        return
    for path in (asked.target, asked.draft):
        if not path.is_file():
            raise SystemExit(f"{path} does not exist; scripts/bench make_pair makes a pair")
    known = [Figure(**f | {"job": Job(**f["job"])}) for f in _saved(asked.out)]
    figures = []
    print("                             n  tokens/s  first s  worst s  per round")
    for job in jobs(asked):
        figure = next((f for f in known if f.job == job), None)
        if figure is None:
            figure = measured(job)
            with asked.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(figure)) + "\n")
        figures.append(figure)
        print(figure.row, flush=True)
    for line in about_memory(figures):
        print(line)


def _saved(file: Path) -> list[dict[str, object]]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    main()
