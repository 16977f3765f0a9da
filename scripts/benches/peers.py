"""Our speed beside the best setting of other programs, found by trying every draft length.

All programs are loaded at once and answer every prompt in turn, one at a time; our plain decoding
begins and ends the turn. Rows are printed and stored as they are measured; the same command
continues where it was stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benches.shared.replies import workloads
from localspec import Options, Runtime
from localspec.bench.peers import Mode, Peer, Question, Setting, llama_server
from localspec.bench.speedup import answer
from localspec.bench.workloads import Workload
from localspec.cli.bench_against import modes
from localspec.core.drafter_registry import computing
from localspec.core.events import Message
from localspec.core.logits import Sampling

_LENGTHS = (2, 3, 5, 7, 15)
_PLAIN = "llama-server plain"


@dataclass(frozen=True, slots=True)
class Row:
    """One workload at one temperature. Speeds relative to our plain decoding of the same turn;
    medians over its prompts.
    """

    workload: str
    temperature: float
    tokens: int
    """Tokens that we emitted with drafting."""
    ours: float
    spread: float
    """Largest ratio of the two plain replies of a turn, slower by quicker."""
    others: Mapping[str, float]
    """Mode of another program -> its speed."""

    @property
    def best(self) -> str:
        """The quickest of the others."""
        return max(self.others, key=lambda name: self.others[name])

    def __str__(self) -> str:
        best, plain = self.best, self.others.get(_PLAIN, math.nan)
        return (
            f"{self.workload:20} {self.temperature:3g} {self.tokens:6} {plain:6.2f}   {best:30} "
            f"{self.others[best]:5.2f} {self.ours:6.2f} {self.ours / self.others[best]:7.2f} "
            f"{self.spread:7.2f}"
        )


HEADER = (
    "workload               T tokens  plain   best of the others              speed   ours  "
    "ours by equal runs"
)


class Results:
    """Rows in a file, one JSON object a line."""

    def __init__(self, path: Path, setting: str) -> None:
        self._path, self._setting = path, setting
        self.rows: list[Row] = []
        for line in path.read_text().splitlines() if path.exists() else ():
            saved = json.loads(line)
            if saved.pop("setting") == setting:
                self.rows.append(Row(**saved))

    def has(self, workload: Workload, temperature: float) -> bool:
        """Whether that was measured before."""
        asked = workload.name, temperature
        return any((r.workload, r.temperature) == asked for r in self.rows)

    def add(self, row: Row) -> None:
        """Store a row."""
        with self._path.open("a") as file:
            saved = {"setting": self._setting, **dataclasses.asdict(row)}
            file.write(json.dumps(saved) + "\n")
        self.rows.append(row)


@dataclass(frozen=True, slots=True)
class Bench:
    """We and other programs that are loaded."""

    runtime: Runtime
    peers: Mapping[str, Peer]
    max_tokens: int
    banned: frozenset[int]
    """Tokens that no reply may contain."""
    memory: bool
    """Whether we draft from earlier requests too, as llama-server's `ngram-mod` does."""

    def row(self, workload: Workload, temperature: float) -> Row:
        """Measure all prompts of a workload.

        Raises:
            LocalspecError: a reply failed, here or there.
        """
        turns = [self._turn(p, temperature, seed) for seed, p in enumerate(workload.prompts)]
        names = self.peers
        return Row(
            workload=workload.name,
            temperature=temperature,
            tokens=sum(turn.tokens for turn in turns),
            ours=statistics.median(turn.ours for turn in turns),
            spread=max(turn.spread for turn in turns),
            others={n: statistics.median(turn.others[n] for turn in turns) for n in names},
        )

    def _turn(self, prompt: str, temperature: float, seed: int) -> Row:
        bias = tuple((token, -math.inf) for token in sorted(self.banned))
        sampling = Sampling(temperature=temperature, logit_bias=bias)
        message = Message("user", prompt)
        text, tokens = self.runtime.render([message]), self.runtime.encode([message])
        question = Question(text, tokens, sampling, seed, self.max_tokens)
        before, _ = self._ours(prompt, sampling, seed, draft=False)
        others = {name: peer.answer(question).speed for name, peer in self.peers.items()}
        ours, emitted = self._ours(prompt, sampling, seed, draft=True)
        after, _ = self._ours(prompt, sampling, seed, draft=False)
        plain = 2 / (1 / before + 1 / after)
        return Row(
            workload="",
            temperature=temperature,
            tokens=emitted,
            ours=ours / plain,
            spread=max(before, after) / min(before, after),
            others={name: speed / plain for name, speed in others.items()},
        )

    def _ours(
        self, prompt: str, sampling: Sampling, seed: int, *, draft: bool
    ) -> tuple[float, int]:
        """(Tokens a second, tokens) of one of our replies."""
        found = answer(
            self.runtime,
            prompt,
            sampling,
            seed,
            self.max_tokens,
            draft=draft,
            draft_memory=self.memory,
        )
        return found.reply.stats.tokens_per_second, found.reply.stats.emitted


@contextlib.contextmanager
def loaded(found: Sequence[Mode], setting: Setting) -> Iterator[dict[str, Peer]]:
    """All of them, for the block."""
    with contextlib.ExitStack() as stack:
        yield {mode.name: stack.enter_context(mode.start(setting)) for mode in found}


def copying(named: Sequence[str]) -> list[Mode]:
    """Llama-server's drafts without a model, if it is among the programs named: two kinds that are
    copied from the text, with their defaults.
    """
    return [
        Mode(f"{name} {kind}", partial(llama_server.running, program, ("--spec-type", kind)))
        for name, _, path in (one.partition("=") for one in named)
        if name == "llama-server"
        for program in [Path(path).expanduser().absolute()]
        for kind in ("ngram-simple", "ngram-mod")
    ]


def report(rows: Sequence[Row]) -> None:
    """Means of what was measured."""
    for temperature in sorted({row.temperature for row in rows}):
        some = [row for row in rows if row.temperature == temperature]
        ours = statistics.geometric_mean(row.ours for row in some)
        share = statistics.geometric_mean(row.ours / row.others[row.best] for row in some)
        least = min(row.ours / row.others[row.best] for row in some)
        print(f"T {temperature:g}: ours {ours:.2f} times plain; by the best {share:.2f}, "
              f"least {least:.2f}")  # fmt: skip
        for name in some[0].others:
            mean = statistics.geometric_mean(row.others[name] for row in some)
            print(f"    {name:30} {mean:5.2f} times our plain decoding in all rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--draft", help="draft model; by default the one that belongs to it")
    parser.add_argument("--drafter", help="our drafters, separated by commas")
    parser.add_argument("--threads", type=int, help="by default as many as are quickest here")
    parser.add_argument(
        "--against", action="append", required=True, help="as for `localspec bench`"
    )
    parser.add_argument("--k", type=int, action="append", help="draft lengths; default 2 to 15")
    parser.add_argument("-t", "--temperature", type=float, action="append")
    parser.add_argument("-n", "--max-tokens", type=int, default=256)
    parser.add_argument(
        "--prompts",
        type=Path,
        help="other prompts: a JSON object of lists by workload (scripts/train_long_pair)",
    )
    parser.add_argument("--workload", action="append", help="name of a workload; default all")
    parser.add_argument(
        "--long", action="store_true", help="forbid the end of replies, so all are equally long"
    )
    parser.add_argument(
        "--draft-memory",
        action="store_true",
        help="draft from earlier requests too, as ngram-mod does on the other side",
    )
    parser.add_argument("--out", type=Path, default=Path("bench-peers.jsonl"))
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the other programs must end too
    options = Options(args.model, args.draft, threads=args.threads)
    if args.drafter:
        options = dataclasses.replace(options, drafter=tuple(args.drafter.split(",")))
    with Runtime.open(options) as runtime:
        info = runtime.info
        own = next(iter(computing(info.drafters)), None)
        found = modes(args.against, args.k or _LENGTHS, own)
        found += copying(args.against) if own else []
        setting = Setting(
            target=Path(info.target),
            draft=Path(info.draft) if info.draft else None,
            threads=info.threads,
            context=info.context,
            gpu=info.backend != "cpu",
            ends=runtime.ends,
        )
        what = (
            f"{info.target} {info.draft} {options.drafter} {info.backend} {info.threads} "
            f"{args.max_tokens} {args.long} {args.k or _LENGTHS}"
            f"{' memory' if args.draft_memory else ''}"
        )
        results = Results(args.out, what)
        if args.draft_memory:
            print("ours: with the memory of earlier requests, those of earlier rows included")
        print(HEADER)
        for row in results.rows:
            print(row)
        with loaded(found, setting) as peers:
            banned = runtime.ends if args.long else frozenset()
            bench = Bench(runtime, peers, args.max_tokens, banned, args.draft_memory)
            for temperature in args.temperature or (0.0, 1.0):
                for workload in workloads(args.prompts):
                    if args.workload and workload.name not in args.workload:
                        continue
                    if results.has(workload, temperature):
                        continue
                    results.add(bench.row(workload, temperature))
                    print(results.rows[-1], flush=True)
    report(results.rows)


if __name__ == "__main__":
    main()
