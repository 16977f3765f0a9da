"""Exactness of strict mode: every kind of weights, drafter and temperature, alone and together.

Requests are answered by plain decoding, one at a time, and then drafted: one at a time as well, or
several at a time, which come and go, have both temperatures and other lengths, and of which some do
not draft. Every one of them is compared with its plain reply, until each temperature has enough
tokens. Cells are printed as they finish; a divergence ends the program with 1. Targets are the
embedded one, rewritten with other weights.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from heads.compose import compose_mtp

from localspec import Options, ReplyRequest, Runtime, Sampling
from localspec.bench.workloads import VERIFY, WORKLOADS
from localspec.core.events import Finished, Message
from localspec.core.files.paths import DEMO_DIR
from localspec.generation.reply_stream import ReplyStream
from localspec.llama.library import c_api, start

_HEADS = Path(__file__).resolve().parents[2] / "tests" / "data" / "heads"
WEIGHTS = {"Q4_0": 2, "Q4_K_M": 15, "Q8_0": 7, "F16": 1}
"""llama.cpp's file types by name."""
DRAFTERS = ("model", "mtp", "eagle3", "suffix")
TOGETHER = (1, 4)
TEMPERATURES = (0.0, 1.0)
_LENGTHS = (160, 96, 160, 40, 128)
"""Tokens of a reply at most, in turns."""


@dataclass(frozen=True)
class Cell:
    """The result of one combination."""

    weights: str
    drafter: str
    together: int
    temperature: float
    tokens: int
    replies: int
    divergences: int
    accepted: int
    verified: int

    @property
    def text(self) -> str:
        """A row of the table."""
        share = self.accepted / self.verified if self.verified else 0.0
        cell = f"{self.weights:7} {self.drafter:7} {self.together} {self.temperature:3g}"
        compared = f"{self.tokens:7} {self.replies:6} {self.divergences:6}"
        return f"{cell} {compared} {share:7.0%}"


def rewritten(source: Path, destination: Path, file_type: int) -> Path:
    """The model with weights of another type; an existing file is used."""
    if not destination.is_file():
        start()
        params = c_api.llama_model_quantize_default_params()
        params.allow_requantize, params.ftype = True, file_type
        partial = destination.with_suffix(".partial")
        if c_api.llama_model_quantize(str(source).encode(), str(partial).encode(), params):
            raise SystemExit(f"{source} cannot be rewritten")
        partial.replace(destination)
    return destination


def options(folder: Path, weights: str, drafter: str, together: int) -> Options:
    """The pair of a cell."""
    target = DEMO_DIR / "target.gguf"
    if drafter == "mtp":
        whole = folder / "target-mtp.gguf"
        if not whole.is_file():
            compose_mtp(target, _HEADS / "mtp-block.gguf", whole)
        target = whole
    target = rewritten(target, folder / f"{target.stem}-{weights}.gguf", WEIGHTS[weights])
    draft = {"model": DEMO_DIR / "draft.gguf", "eagle3": _HEADS / "eagle3.gguf"}.get(drafter)
    return Options(
        model=str(target),
        draft="none" if draft is None and drafter == "suffix" else draft and str(draft),
        drafter=(drafter,),
        threads=1,
        strict=True,
        offline=True,
        parallel=together,
    )


class Questions:
    """The requests of one temperature, without end: prompts come again with other seeds."""

    def __init__(self, temperature: float) -> None:
        self._prompts = [*VERIFY, *(prompt for kind in WORKLOADS for prompt in kind.prompts)]
        self.temperature = temperature
        self._sampling = Sampling(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0)

    def __getitem__(self, at: int) -> ReplyRequest:
        return ReplyRequest(
            (Message("user", self._prompts[at * 7 % len(self._prompts)]),),
            sampling=self._sampling,
            seed=at + 1,
            max_tokens=_LENGTHS[at % len(_LENGTHS)],
        )


class PlainReplies:
    """Plain replies of one target, one at a time, by a runtime of their own; kept in a file."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._file = target.with_suffix(".plain.jsonl")
        self._known = {
            (found["temperature"], found["at"]): tuple(found["tokens"])
            for found in map(json.loads, _lines(self._file))
        }
        self._runtime: Runtime | None = None

    def tokens(self, questions: Questions, at: int) -> tuple[int, ...]:
        """The reply to question ``at``."""
        key = (questions.temperature, at)
        if key not in self._known:
            if self._runtime is None:
                alone = Options(str(self._target), draft="none", threads=1, strict=True)
                self._runtime = Runtime.open(replace(alone, drafter=("off",), offline=True))
            self._runtime.forget()
            reply = self._runtime.answer(replace(questions[at], draft=False))
            self._known[key] = reply.tokens
            row = {"temperature": questions.temperature, "at": at, "tokens": reply.tokens}
            with self._file.open("a") as file:
                file.write(json.dumps(row) + "\n")
        return self._known[key]

    def close(self) -> None:
        """Free the runtime."""
        if self._runtime is not None:
            self._runtime.close()


class Series:
    """All replies of one target and drafter, alone or together, at every temperature."""

    def __init__(self, runtime: Runtime, cells: list[Cell], plain: PlainReplies) -> None:
        self._runtime = runtime
        self._cells = {cell.temperature: cell for cell in cells}
        self._plain = plain
        self._questions = {t: Questions(t) for t in self._cells}

    def run(self, least: int) -> Iterator[Cell]:
        """Compare until every cell has ``least`` tokens."""
        together = self._runtime.info.parallel
        most = 1 if together == 1 else 2 * together  # a place is taken again once it is free
        running: deque[tuple[float, int, ReplyStream]] = deque()
        for at in itertools.count():
            missing = [t for t, cell in self._cells.items() if cell.tokens < least]
            for temperature in missing:
                if together == 1:
                    self._runtime.forget()
                running.append((temperature, at, self._submit(temperature, at)))
                while len(running) >= most:
                    self._compare(*running.popleft())
            if not missing:
                break
        while running:
            self._compare(*running.popleft())
        yield from self._cells.values()

    def _submit(self, temperature: float, at: int) -> ReplyStream:
        request = self._questions[temperature][at]
        if self._runtime.info.parallel > 1 and at % 5 == 4:
            return self._runtime.submit(replace(request, draft=False))
        return self._runtime.submit(request, policy=self._runtime.pair.control.proof)

    def _compare(self, temperature: float, at: int, stream: ReplyStream) -> None:
        *_, last = stream
        assert isinstance(last, Finished)
        reply, cell = last.reply, self._cells[temperature]
        plain = self._plain.tokens(self._questions[temperature], at)
        self._cells[temperature] = replace(
            cell,
            tokens=cell.tokens + len(plain),
            replies=cell.replies + 1,
            divergences=cell.divergences + (plain != reply.tokens),
            accepted=cell.accepted + reply.stats.accepted,
            verified=cell.verified + reply.stats.verified,
        )


def main() -> int:
    """Run the cells that are not in the file of results yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=10_000, help="compared tokens of a cell")
    parser.add_argument("--weights", default=",".join(WEIGHTS), help="kinds, by commas")
    parser.add_argument("--drafters", default=",".join(DRAFTERS), help="drafters, by commas")
    parser.add_argument("--together", default="1,4", help="requests at once, by commas")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for models and results, which are resumed"
    )
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    results = asked.out / "strict.jsonl"
    known = [Cell(**json.loads(line)) for line in _lines(results)]
    print("weights drafter n   T  tokens replies  diverged accepted")
    diverged = 0
    for weights, drafter, together in itertools.product(
        asked.weights.split(","), asked.drafters.split(","), map(int, asked.together.split(","))
    ):
        for cell in _cells(asked.out, weights, drafter, together, asked.tokens, known):
            print(cell.text, flush=True)
            if cell not in known:
                with results.open("a") as file:
                    file.write(json.dumps(asdict(cell)) + "\n")
            diverged += cell.divergences
    print("0 divergences" if not diverged else f"{diverged} DIVERGENCES")
    return 1 if diverged else 0


def _cells(
    folder: Path, weights: str, drafter: str, together: int, least: int, known: list[Cell]
) -> Iterator[Cell]:
    """The cells of one pair, those that are known as they are."""
    todo = []
    for temperature in TEMPERATURES:
        empty = Cell(weights, drafter, together, temperature, 0, 0, 0, 0, 0)
        same = (
            c
            for c in known
            if (c.weights, c.drafter, c.together, c.temperature)
            == (weights, drafter, together, temperature)
            and c.tokens >= least
        )
        found = next(same, None)
        if found is not None:
            yield found
        else:
            todo.append(empty)
    if todo:
        chosen = options(folder, weights, drafter, together)
        plain = PlainReplies(Path(chosen.model))
        with contextlib.closing(plain), Runtime.open(chosen) as runtime:
            assert runtime.info.drafters == (drafter,), runtime.info
            assert runtime.info.parallel == together, runtime.info
            yield from Series(runtime, todo, plain).run(least)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.is_file() else []


if __name__ == "__main__":
    sys.exit(main())
