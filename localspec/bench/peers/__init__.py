"""Other programs on the same files and prompts, side by side with us.

Two programs cannot be timed in one process, but they can be timed in turns: every prompt is
answered plainly by us, then by the peer, then by us with drafting. The result is the ratio to our
plain decoding of the same turn, so a drift of the machine's speed affects all three alike. The
prompts are given as tokens, so a peer answers exactly the same prompt.

llama-cpp-python's own `Llama` runs in this process, plain and with its prompt lookup.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from localspec.bench.speedup import answer
from localspec.bench.workloads import Workload
from localspec.core.errors import UsageError
from localspec.core.events import Message
from localspec.core.logits import GREEDY, Sampling
from localspec.llama.reference import Stock
from localspec.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Setting:
    """The files and settings that a peer loads, the same as ours."""

    target: Path
    draft: Path | None
    threads: int
    context: int
    gpu: bool
    """Whether layers may go to a GPU."""
    ends: frozenset[int]
    """Tokens that end a reply."""
    parallel: int = 1
    """Requests at a time; each has ``context`` tokens."""


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt, as text and as the tokens of it."""

    text: str
    tokens: Sequence[int]
    sampling: Sampling
    seed: int
    max_tokens: int
    schema: Mapping[str, object] | None = None
    """JSON schema of the answer, for peers that follow one."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A peer's answer."""

    text: str
    speed: float
    """Tokens a second while decoding."""
    tokens_per_round: float | None
    """None where it does not draft."""


class Peer(Protocol):
    """A program that is running and answers."""

    def answer(self, question: Question) -> Spoken:
        """One reply; nothing of an earlier prompt is reused.

        Raises:
            PeerError: it does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run a peer."""

    name: str
    """Name in the report: the program and what it drafts with."""
    start: Callable[[Setting], AbstractContextManager[Peer]]
    """Running it is paid for only while it is measured."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One peer on one workload at one temperature; medians over prompts."""

    peer: str
    workload: str
    temperature: float
    ratio: float
    """The peer's speed by that of our plain decoding."""
    ours: float
    """Our speed with drafting by that of our plain decoding."""
    tokens_per_round: float | None
    our_tokens_per_round: float
    same: int
    """Prompts where the peer emitted the same tokens; to be expected at temperature 0 only."""
    prompts: int


def require_common(sampling: Sampling) -> None:
    """Refuse what not every program samples with as we do.

    Raises:
        UsageError: it is more than a temperature, top-k, top-p and min-p.
    """
    s = sampling
    if s != Sampling(temperature=s.temperature, top_k=s.top_k, top_p=s.top_p, min_p=s.min_p):
        raise UsageError(
            "--against samples with -t, --top-k, --top-p and --min-p alone, since not every "
            "program has the others; leave out the other settings of sampling"
        )


class Progress(Protocol):
    """Receives the current stage of the measurement."""

    def tell(self, stage: str, detail: str = "") -> None:
        """May raise to end it."""
        ...


def comparisons(
    runtime: Runtime,
    setting: Setting,
    modes: Sequence[Mode],
    workloads: Sequence[Workload],
    temperatures: Sequence[float],
    *,
    max_tokens: int,
    sampling: Sampling = GREEDY,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[Compared]:
    """Measure all peers, one running at a time; each row as it is done. ``sampling`` and ``seed``
    are as in `Measuring`.

    Raises:
        LocalspecError: a reply failed, here or there.
    """
    for mode in modes:
        if progress is not None:
            progress.tell(f"starting {mode.name}")
        with mode.start(setting) as peer:
            for temperature in temperatures:
                asked = replace(sampling, temperature=temperature)
                for workload in workloads:
                    turns = []
                    count = len(workload.prompts)
                    for i in range(count):
                        if progress is not None:
                            stage = f"{mode.name}: {workload.name}, temperature {temperature:g}"
                            progress.tell(stage, f"prompt {i + 1} of {count}")
                        prompt = workload.prompts[i]
                        turns.append(_turn(runtime, peer, prompt, asked, seed + i, max_tokens))
                    yield _compared(mode.name, workload.name, temperature, turns)


@dataclass(frozen=True, slots=True)
class _Turn:
    plain: float
    ours: float
    our_tokens_per_round: float
    spoken: Spoken
    same: bool


def _turn(
    runtime: Runtime, peer: Peer, prompt: str, sampling: Sampling, seed: int, max_tokens: int
) -> _Turn:
    message = Message("user", prompt)
    text = runtime.render([message])
    tokens = runtime.encode([message])
    plain = answer(runtime, prompt, sampling, seed, max_tokens, draft=False).reply
    spoken = peer.answer(Question(text, tokens, sampling, seed, max_tokens))
    ours = answer(runtime, prompt, sampling, seed, max_tokens, draft=True).reply
    stats = ours.stats
    return _Turn(
        plain=plain.stats.tokens_per_second,
        ours=stats.tokens_per_second,
        our_tokens_per_round=stats.emitted / max(1, stats.rounds),
        spoken=spoken,
        same=spoken.text.strip() == plain.text.strip(),
    )


def _compared(peer: str, workload: str, temperature: float, turns: Sequence[_Turn]) -> Compared:
    rounds = [t.spoken.tokens_per_round for t in turns if t.spoken.tokens_per_round is not None]
    return Compared(
        peer=peer,
        workload=workload,
        temperature=temperature,
        ratio=statistics.median(t.spoken.speed / t.plain for t in turns),
        ours=statistics.median(t.ours / t.plain for t in turns),
        tokens_per_round=statistics.mean(rounds) if rounds else None,
        our_tokens_per_round=statistics.mean(t.our_tokens_per_round for t in turns),
        same=sum(t.same for t in turns),
        prompts=len(turns),
    )


def modes() -> list[Mode]:
    """Plain and prompt lookup."""
    return [
        Mode("llama-cpp-python plain", partial(running, False)),
        Mode("llama-cpp-python lookup", partial(running, True)),
    ]


@contextlib.contextmanager
def running(lookup: bool, setting: Setting) -> Iterator[Peer]:
    """Loaded for the block."""
    stock = Stock(
        setting.target,
        context=setting.context,
        threads=setting.threads,
        gpu=setting.gpu,
        lookup=lookup,
    )
    try:
        yield _Library(stock, setting.ends)
    finally:
        stock.close()


class _Library:
    def __init__(self, stock: Stock, ends: frozenset[int]) -> None:
        self._stock, self._ends = stock, ends

    def answer(self, question: Question) -> Spoken:
        tokens, speed, rounds = self._stock.answer(
            question.tokens, question.sampling, question.seed, question.max_tokens, self._ends
        )
        emitted = [token for token in tokens if token not in self._ends]
        return Spoken(self._stock.text(emitted), speed, rounds)
