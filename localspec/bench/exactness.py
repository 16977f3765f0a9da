"""Proof on this machine that drafting changes nothing: what `localspec verify` does.

Every prompt is answered with and without drafting under the same seed. For equal logits the two
are equal token for token. Logits of a pass over one token and of a pass over several differ in
the last bits on most backends, so a divergence is examined: at the first differing token, how
far apart were the two in the target's own scores? Only a gap that the measured difference
between such passes can bridge is a near-tie; any other is a failure.

What is drafted is all that a chat may draft, see `localspec.policy.exercise`, and the difference is
measured for passes of the widths that really occurred.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.core.events import Message, Reply
from localspec.core.logits import Sampling
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.core.target import Work
from localspec.core.values import Draft, Logits, Proposal, chain_parents, no_draft
from localspec.runtime import Runtime
from localspec.verifiers.near_tie import Choice

_SEQ = 0
_NOISE_PROMPTS = 6
_NOISE_TEXTS = 48
"""Texts read to measure noise, all widths together; each width is measured on one at least."""
_SAFETY = 2.0
"""Two tokens may move by the noise, in opposite directions."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a drafted reply left the plain one."""

    prompt: str
    position: int
    """Index in the reply."""
    plain: int
    drafted: int
    """Token ids."""
    gap: float
    """How far apart the two are in the target's logits: twice what every logit must be able to
    move for the other one to be chosen, in units of logits."""
    near_tie: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """One sampling setting over all prompts."""

    temperature: float
    replies: int
    identical: int
    tokens: int
    accepted: int
    verified: int
    rounds: int
    divergences: tuple[Divergence, ...]

    @property
    def acceptance(self) -> float:
        """accepted / verified."""
        return self.accepted / self.verified if self.verified else 0.0


@dataclass(frozen=True, slots=True)
class Verification:
    """All of it."""

    batch_noise: float
    """Largest difference of a logit between passes of one and of several tokens, seen here."""
    typical_noise: float
    """Median over positions of the largest difference."""
    comparisons: tuple[Comparison, ...]
    widths: dict[int, int]
    """Passes of all replies, plain ones too, by their tokens."""

    @property
    def exact(self) -> bool:
        """Whether every divergence is a near-tie."""
        return all(d.near_tie for c in self.comparisons for d in c.divergences)


def verify(
    runtime: Runtime,
    prompts: Sequence[str],
    sampling: Sequence[Sampling],
    *,
    max_tokens: int,
    seed: int,
    on_progress: Callable[[float, int], None] | None = None,
) -> Verification:
    """Compare drafting with plain decoding; ``on_progress`` gets (temperature, replies done).

    Raises:
        LocalspecError: a reply failed.
    """
    widths = runtime.lend().target.widths
    widths.clear()
    answered: list[tuple[Sampling, list[tuple[str, Reply, Reply]]]] = []
    for setting in sampling:
        pairs: list[tuple[str, Reply, Reply]] = []
        for i, prompt in enumerate(prompts):
            plain = answer(runtime, prompt, setting, seed + i, max_tokens, draft=False)
            with runtime.exercising():
                drafted = answer(runtime, prompt, setting, seed + i, max_tokens, draft=True)
            pairs.append((prompt, plain, drafted))
            if on_progress is not None:
                on_progress(setting.temperature, i + 1)
        answered.append((setting, pairs))
    used = dict(sorted(widths.items()))
    scorer = Scorer(runtime)
    noise = list(
        scorer.batch_noise(prompts[:_NOISE_PROMPTS], max_tokens, [n for n in used if n > 1])
    )
    worst = max(noise, default=0.0)
    comparisons = []
    for setting, plain_drafted in answered:
        divergences = [
            scorer.examine(prompt, plain, drafted, setting, worst)
            for prompt, plain, drafted in plain_drafted
            if plain.tokens != drafted.tokens
        ]
        drafted_stats = [d.stats for _, _, d in plain_drafted]
        comparisons.append(
            Comparison(
                temperature=setting.temperature,
                replies=len(prompts),
                identical=len(prompts) - len(divergences),
                tokens=sum(len(p.tokens) for _, p, _ in plain_drafted),
                accepted=sum(s.accepted for s in drafted_stats),
                verified=sum(s.verified for s in drafted_stats),
                rounds=sum(s.rounds for s in drafted_stats),
                divergences=tuple(divergences),
            )
        )
    typical = statistics.median(noise) if noise else 0.0
    return Verification(worst, typical, tuple(comparisons), used)


def answer(
    runtime: Runtime, prompt: str, sampling: Sampling, seed: int, max_tokens: int, *, draft: bool
) -> Reply:
    """One reply, waited for."""
    return runtime.answer(
        ReplyRequest((Message("user", prompt),), None, sampling, seed, max_tokens, draft=draft)
    )


class Scorer:
    """Reads given tokens through the target and looks at the logits."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._n_vocab = runtime.lend().target_model.n_vocab

    def batch_noise(
        self, prompts: Sequence[str], max_tokens: int, widths: Sequence[int]
    ) -> Iterator[float]:
        """Largest logit difference at each position of plain replies, over passes of ``widths``.

        Each width is measured on as many of the replies as time allows, in turns.
        """
        if not widths or not prompts:
            return
        each = min(len(prompts), max(1, _NOISE_TEXTS // len(widths)))
        chosen = [
            [width for i, width in enumerate(widths) if (at - i) % len(prompts) < each]
            for at in range(len(prompts))
        ]
        for prompt, here in zip(prompts, chosen, strict=True):
            if here:
                yield from self._noise_of(prompt, max_tokens, here)

    def _noise_of(self, prompt: str, max_tokens: int, widths: Sequence[int]) -> Iterator[float]:
        greedy = Sampling(temperature=0)
        reply = answer(self._runtime, prompt, greedy, 0, max_tokens, draft=False)
        text = [*self._runtime.encode([Message("user", prompt)]), *reply.tokens]
        # Two of the widest passes at least, if the reply is too short with the end of the prompt.
        measured = min(len(text) - 1, max(len(reply.tokens), 2 * max(widths)))
        known, rest = text[:-measured], text[-measured:]
        single = self._rows(known, rest, 1)
        for width in widths:
            yield from np.abs(single - self._rows(known, rest, width)).max(axis=1).tolist()

    def examine(
        self, prompt: str, plain: Reply, drafted: Reply, sampling: Sampling, noise: float
    ) -> Divergence:
        """How close the call was where two replies part."""
        pairs = zip(plain.tokens, drafted.tokens, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if at is None:  # one goes on where the other ends, after the same tokens: never a near-tie
            at = min(len(plain.tokens), len(drafted.tokens)) - 1
            last = plain.tokens[at]
            return Divergence(prompt, at, last, last, np.inf, near_tie=False)
        a, b = plain.tokens[at], drafted.tokens[at]
        tokens = self._runtime.encode([Message("user", prompt)])
        row = self._rows(tokens, list(plain.tokens[: at + 1]), 1)[-1]
        choice = Choice([*tokens, *plain.tokens[:at]], sampling, Noise(plain.seed), self._n_vocab)
        gap = 2 * max(choice.distance(row, a), choice.distance(row, b))
        return Divergence(prompt, at, a, b, gap, near_tie=gap <= _SAFETY * noise)

    def _rows(self, prompt: list[int], reply: list[int], width: int) -> Logits:
        """Logits (len(reply), V) that chose each token of a reply, read ``width`` at a time."""
        target = self._runtime.lend().target
        target.read(_SEQ, prompt[:-1])
        tokens = [prompt[-1], *reply[:-1]]
        rows = []
        for i in range(0, len(tokens), width):
            pending, *rest = tokens[i : i + width]
            draft = no_draft("verify")
            if rest:
                ids = np.array(rest, np.int32)
                parents = chain_parents(len(rest))
                draft = Draft(ids, parents, Proposal.DETERMINISTIC, None, "verify")
            (scores,) = target.score([Work(_SEQ, pending, draft)])
            rows.append(scores.logits.copy())
            target.keep(_SEQ, range(len(rest)))
        self._runtime.lend()
        return np.concatenate(rows)
