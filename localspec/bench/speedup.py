"""Compares plain with speculative decoding, side by side in one process: `localspec bench`.

Every prompt is answered plainly and with drafting, in turns that alternate, so that a machine whose
speed drifts harms both alike. Under `match` both replies are the same text, and the ratio of their
decoding times is the speed-up; the prompt's reading is not part of it and reported by itself. A
prompt is counted once: what an earlier reply left in the KV cache changes its reading only.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from localspec.bench.lab import Lab
from localspec.bench.scoring import message_of
from localspec.bench.workloads import Step, Workload
from localspec.core.emitted import GRAMMAR
from localspec.core.errors import Interrupted
from localspec.core.events import Finished, Notice, Reply, Round
from localspec.core.logits import GREEDY, Sampling
from localspec.core.picture import Picture
from localspec.core.reply_request import ReplyRequest, seed_of_variant
from localspec.core.round_counts import RoundCounts
from localspec.core.speed_formula import best_fixed, expected_tokens
from localspec.runtime import Runtime

_NOISY = 0.15
"""Spread of the plain speeds, relative to their median, beyond which nothing is concluded."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One workload at one temperature."""

    workload: str
    temperature: float
    ratios: tuple[float, ...]
    """Per prompt: speed with drafting by plain speed, tokens a second."""
    plain_speed: float
    """Median, tokens a second."""
    speed: float
    acceptance: float
    tokens_per_round: float
    per_position: tuple[float, ...]
    """See `RoundCounts.per_position`."""
    lengths: dict[int, int]
    """Rounds by draft length."""
    first_token: float
    """Median seconds until the prompt is read, with drafting."""
    outside: float
    """Share of the drafted replies' time that is neither drafting nor the target's passes."""
    bound: float
    """Ratio that the best draft length for all rounds would reach with these acceptances."""
    bound_length: int
    predicted: float
    """Tokens of a round with a draft by the papers' formula, from acceptance and mean length."""
    observed: float
    """Tokens of a round with a draft, as measured."""
    parked: bool
    """Whether the policy ended up parked."""
    forced: float = 0.0
    """Share of the drafted replies' tokens that were drafted since a grammar allowed no other."""
    guessed: float = 0.0
    """Acceptance of all other drafted tokens."""

    @property
    def ratio(self) -> float:
        """Median of the ratios."""
        return statistics.median(self.ratios)


@dataclass(frozen=True, slots=True)
class Bench:
    """All workloads."""

    results: tuple[Measured, ...]
    spread: float
    """Spread of plain speeds over repeated runs of one prompt: (largest - smallest) / median."""
    curve: Mapping[int, float]
    """Seconds of a target pass by width."""
    draft_costs: Mapping[str, float]
    """Seconds a token, by drafter."""
    notices: tuple[str, ...] = ()
    """Notices meanwhile, such as of threads that gave way to another program."""

    @property
    def noisy(self) -> bool:
        """Whether the machine is too restless to conclude anything."""
        return self.spread > _NOISY

    @property
    def mean_ratio(self) -> float | None:
        """Geometric mean of the workloads' ratios; None before there is one."""
        ratios = [m.ratio for m in self.results]
        return statistics.geometric_mean(ratios) if ratios else None


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply and its rounds."""

    reply: Reply
    rounds: tuple[Round, ...]
    notices: tuple[str, ...] = ()


def answer(
    runtime: Runtime,
    question: str | ReplyRequest,
    sampling: Sampling,
    seed: int,
    max_tokens: int,
    *,
    draft: bool,
    draft_memory: bool = False,
    pictures: tuple[Picture, ...] = (),
) -> Answered:
    """One reply, waited for. With ``draft_memory``, replies to the same question are drafted from
    each other. ``pictures`` are in front of a question that is a text.

    Raises:
        Interrupted: it was cut short.
    """
    rounds: list[Round] = []
    notices: list[str] = []
    if isinstance(question, str):
        question = ReplyRequest((message_of(question, pictures),))
    request = replace(
        question,
        sampling=sampling,
        seed=seed,
        max_tokens=max_tokens,
        draft=draft,
        draft_memory=draft_memory,
    )
    for event in runtime.submit(request):
        if isinstance(event, Round):
            rounds.append(event)
        elif isinstance(event, Notice):
            notices.append(event.text)
        elif isinstance(event, Finished):
            if event.reply.finish_reason == "interrupt":
                raise Interrupted("interrupted; what was measured is incomplete")
            return Answered(event.reply, tuple(rounds), tuple(notices))
    raise AssertionError("a reply ends with Finished")


class Measuring:
    """A benchmark that goes on prompt by prompt."""

    def __init__(
        self,
        runtime: Runtime,
        workloads: Sequence[Workload],
        temperatures: Sequence[float],
        *,
        max_tokens: int,
        sampling: Sampling = GREEDY,
        seed: int = 0,
        pictures: tuple[Picture, ...] = (),
    ) -> None:
        """Measure nothing yet; see `steps`. ``sampling`` holds for all temperatures; ``seed`` is
        that of the first prompt, and others count on from it. ``pictures`` are in front of every
        prompt.
        """
        self._sampling, self._seed = sampling, seed
        self._pictures = pictures
        self._runtime = runtime
        self._lab = Lab(runtime)
        self._workloads = workloads
        self._temperatures = temperatures
        self._max_tokens = max_tokens
        self._spread = 0.0
        self._notices: list[str] = []
        self.rows: list[Measured] = []
        """One for each workload that is done, by temperature."""

    def steps(self) -> Iterator[Step]:
        """Measure; each step is announced before it is made.

        Raises:
            LocalspecError: a reply failed.
        """
        first = self._workloads[0].prompts[0]
        self._spread = _spread(self._runtime, first, self._max_tokens, self._pictures)
        for temperature in self._temperatures:
            sampling = replace(self._sampling, temperature=temperature)
            for workload in self._workloads:
                pairs = []
                for i, question in enumerate(workload.questions):
                    yield Step(workload.name, temperature, i, len(workload.questions))
                    pairs.append(self._pair(question, sampling, i))
                costs = self._lab.costs()
                curve, drafts = (
                    (costs.curve(), costs.token_seconds_by_drafter()) if costs else ({}, {})
                )
                self.rows.append(_measured(workload, temperature, pairs, curve, drafts))

    def so_far(self) -> Bench:
        """The result of all steps until now."""
        costs = self._lab.costs()
        return Bench(
            tuple(self.rows),
            self._spread,
            costs.curve() if costs else {},
            costs.token_seconds_by_drafter() if costs else {},
            tuple(self._notices),
        )

    def _pair(
        self, question: str | ReplyRequest, sampling: Sampling, index: int
    ) -> tuple[Reply, Answered]:
        """The question answered plainly and with drafting, in an order that alternates."""
        order = (False, True) if index % 2 == 0 else (True, False)
        replies = {
            draft: answer(
                self._runtime,
                question,
                sampling,
                seed_of_variant(self._seed, index),
                self._max_tokens,
                draft=draft,
                pictures=self._pictures,
            )
            for draft in order
        }
        self._notices += [text for draft in order for text in replies[draft].notices]
        return replies[False].reply, replies[True]


def _spread(runtime: Runtime, prompt: str, max_tokens: int, pictures: tuple[Picture, ...]) -> float:
    """Warm up, then see how much plain speed varies."""
    sampling = Sampling(temperature=0)

    def speed(*, draft: bool) -> float:
        found = answer(runtime, prompt, sampling, 0, max_tokens, draft=draft, pictures=pictures)
        return found.reply.stats.tokens_per_second

    speed(draft=True)
    speeds = [speed(draft=False) for _ in range(4)]
    return (max(speeds) - min(speeds)) / statistics.median(speeds)


def _measured(
    workload: Workload,
    temperature: float,
    pairs: Sequence[tuple[Reply, Answered]],
    curve: Mapping[int, float],
    draft_costs: Mapping[str, float],
) -> Measured:
    drafted = [d.reply.stats for _, d in pairs]
    rounds = [r for _, d in pairs for r in d.rounds]
    with_draft = [r for r in rounds if r.drafted]
    verified = sum(s.verified for s in drafted)
    by_grammar = [s.by_drafter[GRAMMAR] for s in drafted if GRAMMAR in s.by_drafter]
    forced, judged = sum(g.accepted for g in by_grammar), sum(g.verified for g in by_grammar)
    acceptance = sum(s.accepted for s in drafted) / verified if verified else 0.0
    seconds = sum(s.decode_seconds for s in drafted)
    inside = sum(s.draft_seconds + s.verify_seconds for s in drafted)
    positions = RoundCounts.of(with_draft).per_position
    cost = mean_cost(with_draft, draft_costs)
    bound, length = best_fixed(positions, curve, cost) if len(curve) > 1 else (1.0, 0)
    mean_length = statistics.mean(r.drafted for r in with_draft) if with_draft else 0.0
    return Measured(
        workload=workload.name,
        temperature=temperature,
        ratios=tuple(
            d.reply.stats.tokens_per_second / p.stats.tokens_per_second
            for p, d in pairs
            if p.stats.tokens_per_second > 0
        ),
        plain_speed=statistics.median(p.stats.tokens_per_second for p, _ in pairs),
        speed=statistics.median(s.tokens_per_second for s in drafted),
        acceptance=acceptance,
        tokens_per_round=sum(s.emitted for s in drafted) / sum(s.rounds for s in drafted),
        per_position=positions,
        lengths=dict(sorted(collections.Counter(r.drafted for r in rounds).items())),
        first_token=statistics.median(s.prompt_seconds for s in drafted),
        outside=1 - inside / seconds if seconds else 0.0,
        bound=bound,
        bound_length=length,
        predicted=expected_tokens(acceptance, mean_length),
        observed=statistics.mean(r.emitted for r in with_draft) if with_draft else 1.0,
        parked=drafted[-1].speculation.state == "parked",
        forced=forced / max(1, sum(s.emitted for s in drafted)),
        guessed=(sum(s.accepted for s in drafted) - forced) / max(1, verified - judged),
    )


def mean_cost(rounds: Sequence[Round], costs: Mapping[str, float]) -> float:
    """Seconds a drafted token, over the drafters that drafted them; forced ones cost none."""
    tokens = sum(r.drafted for r in rounds)
    seconds = sum((r.drafted - r.forced) * costs.get(r.source, 0.0) for r in rounds)
    return seconds / tokens if tokens else 0.0
