"""Exactness of strict mode: every kind of weights, drafter and temperature, alone and together.

Each cell answers prompts until it has compared enough tokens: plain and alone, then drafted, alone
or beside three others that draft as well and come and go. Cells are printed as they finish; a
divergence ends the program with 1. Targets are the embedded one, rewritten with other weights.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from heads.compose import compose_mtp

from localspec import Options, ReplyRequest, Runtime, Sampling
from localspec.bench.together import Company
from localspec.bench.verify_prompts import VERIFY
from localspec.bench.workloads import WORKLOADS
from localspec.core.events import Message
from localspec.demo import FOLDER
from localspec.llama.library import c_api, start

_HEADS = Path(__file__).resolve().parent.parent / "tests" / "data" / "heads"
WEIGHTS = {"Q4_0": 2, "Q4_K_M": 15, "Q8_0": 7, "F16": 1}
"""llama.cpp's file types by name."""
DRAFTERS = ("model", "mtp", "eagle3", "suffix")
TOGETHER = (1, 4)
TEMPERATURES = (0.0, 1.0)
_REPLY = 160
"""Tokens of a reply at most."""


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
    seconds: float

    @property
    def text(self) -> str:
        """A row of the table."""
        share = self.accepted / self.verified if self.verified else 0.0
        cell = f"{self.weights:7} {self.drafter:7} {self.together} {self.temperature:3g}"
        compared = f"{self.tokens:7} {self.replies:6} {self.divergences:6}"
        return f"{cell} {compared} {share:7.0%} {self.seconds:6.0f}"


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
    target = FOLDER / "target.gguf"
    if drafter == "mtp":
        whole = folder / "target-mtp.gguf"
        if not whole.is_file():
            compose_mtp(target, _HEADS / "mtp-block.gguf", whole)
        target = whole
    target = rewritten(target, folder / f"{target.stem}-{weights}.gguf", WEIGHTS[weights])
    draft = {"model": FOLDER / "draft.gguf", "eagle3": _HEADS / "eagle3.gguf"}.get(drafter)
    return Options(
        model=str(target),
        draft="none" if draft is None and drafter == "suffix" else draft and str(draft),
        drafter=(drafter,),
        threads=1,
        strict=True,
        offline=True,
        parallel=together,
    )


def requests(temperature: float) -> Iterator[ReplyRequest]:
    """Requests without end; prompts come again with other seeds."""
    prompts = [*VERIFY, *(prompt for kind in WORKLOADS for prompt in kind.prompts)]
    for seed in itertools.count(1):
        prompt = prompts[seed * 7 % len(prompts)]
        yield ReplyRequest(
            (Message("user", prompt),),
            sampling=Sampling(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0),
            seed=seed,
            max_tokens=_REPLY,
        )


def measured(runtime: Runtime, cell: Cell, least: int) -> Cell:
    """The cell after at least so many compared tokens."""
    began = time.monotonic()
    company = Company(runtime, VERIFY, cell.together)
    for request in requests(cell.temperature):
        runtime.forget()
        plain = runtime.answer(replace(request, draft=False))
        runtime.forget()
        if cell.together > 1:
            company.gather()
        stream = runtime.submit(request, policy=runtime.pair.control.proof)
        if cell.together > 1:
            company.queue()
        *_, last = stream
        if cell.together > 1:
            company.leave()
        drafted = last.reply
        cell = replace(
            cell,
            tokens=cell.tokens + len(plain.tokens),
            replies=cell.replies + 1,
            divergences=cell.divergences + (plain.tokens != drafted.tokens),
            accepted=cell.accepted + drafted.stats.accepted,
            verified=cell.verified + drafted.stats.verified,
            seconds=time.monotonic() - began,
        )
        if cell.tokens >= least:
            break
    return cell


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
    print("weights drafter n   T  tokens replies  diverged accepted  seconds")
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
        empty = Cell(weights, drafter, together, temperature, 0, 0, 0, 0, 0, 0.0)
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
        with Runtime.open(options(folder, weights, drafter, together)) as runtime:
            assert runtime.info.drafters == (drafter,), runtime.info
            for empty in todo:
                yield measured(runtime, empty, least)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.is_file() else []


if __name__ == "__main__":
    sys.exit(main())
