"""Structured output side by side: plain masked decoding, forced tokens, drafts, and no grammar.

scripts/bench grammar                            the embedded pair
scripts/bench grammar -m NAME [-d DRAFT] --json out.json
scripts/bench grammar -m FILE.gguf --against llama-server=PATH

Every task (shared/grammar_tasks.jsonl: six of each of ten kinds, and calls of twenty tools) is
answered by all ways in turn, in one process: a drift of the machine's speed affects all alike.
Ratios are those of the tokens per second of a task; the table has their medians. "unmasked" decodes
with drafts and without a grammar, and asks again, with another seed, until the answer fits the
schema; its speed counts the tokens of the answer that fits over the time of all attempts. Texts
that are finished are judged by the package jsonschema.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema

from localspec import GREEDY, GrammarSpec, Message, Options, ReplyRequest, Runtime, Sampling
from localspec.bench.peers import Peer, Question, Setting
from localspec.bench.peers.llama_server import running
from localspec.core.errors import LocalspecError

ATTEMPTS = 3
_TASKS = Path(__file__).with_name("shared") / "grammar_tasks.jsonl"


@dataclass(frozen=True)
class Task:
    """A question whose answer has to fit a schema."""

    kind: str
    question: str
    schema: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """One answer."""

    task: int
    kind: str
    way: str
    finished: bool
    valid: bool
    tokens: int
    tokens_per_pass: float
    speed: float
    """Tokens a second while decoding."""
    forced: int = 0
    attempts: int = 1


def fits(text: str, task: Task) -> bool:
    """Whether a text is JSON that the schema allows."""
    try:
        checker = jsonschema.FormatChecker()
        jsonschema.validate(json.loads(text), task.schema, format_checker=checker)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def asked(task: Task, args: argparse.Namespace) -> ReplyRequest:
    """The request of a task, under its grammar."""
    keys = (
        json.dumps(task.schema)
        if args.show_schema
        else ", ".join(task.schema.get("properties", ()))
    )
    text = f"{task.question} Answer in JSON with these keys: {keys}."
    sampling = GREEDY if args.temperature == 0 else Sampling(temperature=args.temperature)
    return ReplyRequest(
        (Message("user", text),),
        sampling=sampling,
        seed=args.seed,
        max_tokens=args.tokens,
        grammar=GrammarSpec.schema(task.schema),
    )


def masked(number: int, task: Task, way: str, runtime: Runtime, request: ReplyRequest) -> Result:
    """An answer under the grammar."""
    reply = runtime.answer(request)
    stats = reply.stats
    by_grammar = stats.by_drafter.get("grammar")
    return Result(
        number,
        task.kind,
        way,
        reply.finish_reason == "stop",
        fits(reply.text, task),
        stats.emitted,
        stats.tokens_per_round,
        stats.tokens_per_second,
        by_grammar.accepted if by_grammar else 0,
    )


def unmasked(number: int, task: Task, runtime: Runtime, request: ReplyRequest) -> Result:
    """An answer without the grammar, asked again until it fits."""
    seconds, valid, attempt = 0.0, False, 0
    while not valid and attempt < ATTEMPTS:
        attempt += 1
        warm = request.sampling if attempt == 1 else Sampling(temperature=0.8)
        reply = runtime.answer(
            replace(request, grammar=None, seed=(request.seed or 0) + attempt - 1, sampling=warm)
        )
        seconds += reply.stats.decode_seconds
        valid = fits(reply.text, task)
    stats = reply.stats
    speed = stats.emitted / seconds if valid and seconds else 0.0
    finished = reply.finish_reason == "stop"
    return Result(
        number,
        task.kind,
        "unmasked with retries",
        finished,
        valid,
        stats.emitted,
        stats.tokens_per_round,
        speed,
        attempts=attempt,
    )


def by_peer(
    number: int, task: Task, way: str, peer: Peer, runtime: Runtime, request: ReplyRequest
) -> Result:
    """The answer of another program under the same schema."""
    text = runtime.render(request.messages)
    spoken = peer.answer(
        Question(
            text,
            runtime.encode(request.messages),
            request.sampling,
            request.seed or 0,
            request.max_tokens or 256,
            task.schema,
        )
    )
    valid = fits(spoken.text, task)
    tokens = len(runtime.pair.target_model.tokenize(spoken.text))
    passes = spoken.tokens_per_round or 1.0
    return Result(number, task.kind, way, valid, valid, tokens, passes, spoken.speed)


@contextlib.contextmanager
def peers(args: argparse.Namespace, runtime: Runtime) -> Iterator[dict[str, Peer]]:
    """llama-server plain and with the draft model, where its program is given."""
    if args.against is None:
        yield {}
        return
    program = Path(args.against.removeprefix("llama-server="))
    info = runtime.info
    setting = Setting(
        target=Path(info.target),
        draft=Path(info.draft) if info.draft else None,
        threads=info.threads or 1,
        context=info.context,
        gpu="cpu" not in info.backend,
        ends=runtime.ends,
    )
    ways = {"llama-server plain": ()}
    if setting.draft is not None:
        drafting = ("--spec-type", "draft-simple", "--spec-draft-n-max", "4")
        ways["llama-server draft K=4"] = drafting
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(running(program, flags, setting))
            for name, flags in ways.items()
        }


def run(args: argparse.Namespace) -> Iterator[Result]:
    """All answers, task by task."""
    lines = _TASKS.read_text(encoding="utf-8").splitlines()
    tasks = [Task(**json.loads(line)) for line in lines][:: args.every]
    model = {"model": args.model, "draft": args.draft}
    with (
        Runtime.open(Options(**model, drafter=("grammar",))) as forced,
        Runtime.open(Options(**{**model, "draft": "none"}, drafter=("suffix",))) as copying,
        Runtime.open(Options(**model)) as drafting,
        peers(args, drafting) as others,
    ):
        ways = {"forced tokens": forced, "suffix": copying, "draft model": drafting}
        for runtime in ways.values():
            runtime.answer(asked(tasks[0], args))  # the vocabulary is prepared, costs are measured
        for number, task in enumerate(tasks):
            request = asked(task, args)
            yield masked(number, task, "plain masked", forced, replace(request, draft=False))
            for way, runtime in ways.items():
                yield masked(number, task, way, runtime, request)
            yield unmasked(number, task, drafting, request)
            for way, peer in others.items():
                yield by_peer(number, task, way, peer, drafting, request)
            print(f"{number + 1}/{len(tasks)} {task.kind}", end="\r", file=sys.stderr)


def table(results: list[Result]) -> Iterator[str]:
    """A Markdown table, a row for each way; speeds are ratios to plain masked decoding."""
    yield "| way | finished | valid of those | tokens/pass | forced | speed | attempts |"
    yield "|---|---|---|---|---|---|---|"
    plain = {r.task: r.speed for r in results if r.way == "plain masked"}
    for way in dict.fromkeys(r.way for r in results):
        found = [r for r in results if r.way == way]
        finished = [r for r in found if r.finished]
        tokens = sum(r.tokens for r in found)
        passes = sum(r.tokens / max(1.0, r.tokens_per_pass) for r in found)
        attempts = statistics.mean(r.attempts for r in found)
        ratios = [r.speed / plain[r.task] for r in found if plain[r.task] and r.tokens > 1]
        yield (
            f"| {way} | {len(finished)}/{len(found)} | {sum(r.valid for r in finished)} | "
            f"{tokens / max(1, passes):.2f} | {sum(r.forced for r in found) / max(1, tokens):.0%} "
            f"| {statistics.median(ratios):.2f} × | {attempts:.1f} |"
        )


def kinds(results: list[Result]) -> Iterator[str]:
    """Tokens per pass and speed of forced tokens and of drafts, by kind of schema."""
    yield ""
    yield "| kind | forced tokens: tokens/pass | speed | draft model: tokens/pass | speed |"
    yield "|---|---|---|---|---|"
    plain = {r.task: r.speed for r in results if r.way == "plain masked"}
    for kind in dict.fromkeys(r.kind for r in results):
        cells = []
        for way in ("forced tokens", "draft model"):
            found = [r for r in results if r.way == way and r.kind == kind and plain[r.task]]
            per_pass = statistics.median(r.tokens_per_pass for r in found)
            speed = statistics.median(r.speed / plain[r.task] for r in found)
            cells.append(f"{per_pass:.2f} | {speed:.2f} ×")
        yield f"| {kind} | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="demo")
    parser.add_argument("-d", "--draft")
    parser.add_argument("-t", "--temperature", type=float, default=0.0)
    parser.add_argument("-n", "--tokens", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="take only every N-th task")
    parser.add_argument("--show-schema", action="store_true", help="put the schema into the prompt")
    parser.add_argument("--against", metavar="llama-server=PATH")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results")
    args = parser.parse_args()
    try:
        results = list(run(args))
    except LocalspecError as error:
        print(f"bench_grammar: {error}", file=sys.stderr)
        return error.exit_code
    print("\n".join([*table(results), *kinds(results)]))
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(r) for r in results], indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
