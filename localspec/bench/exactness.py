"""Proof on this machine that drafting changes nothing: what `localspec verify` does.

Every prompt is answered with and without drafting under the same seed. For equal logits the two
are equal token for token. Logits of a pass over one token and of a pass over several differ in
the last bits on most backends, so a divergence is examined: at the first differing token, how
large was their difference in the target's own scores? Only a gap that the measured difference
between such passes can bridge is a near-tie; any other is a failure.

What is drafted is all that a chat may draft, see `localspec.policy.exercise`, and the difference is
measured for passes of the widths that really occurred.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.bench.lab import Lab
from localspec.core.events import Message, Reply
from localspec.core.logits import Sampling
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.core.target import Work
from localspec.core.values import Draft, Logits, Proposal, chain_parents, no_draft
from localspec.errors import Interrupted
from localspec.runtime import Runtime
from localspec.verifiers.near_tie import Choice

_SEQ = 0
_NOISE_PROMPTS = 6
_TEXTS_PER_WIDTH = 2
_WIDEST = 32
"""Tokens of the widest pass that a chat makes, but for long drafts that were asked for."""
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
    """The difference of the two in the target's logits: twice what every logit must be able to
    move for the other one to be chosen, in units of logits."""
    near_tie: bool


@dataclass(frozen=True, slots=True)
class SettingComparison:
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

    def judged(self, noise: float) -> SettingComparison:
        """The same with each divergence judged by this batch noise."""
        judged = tuple(
            dataclasses.replace(d, near_tie=d.gap <= _SAFETY * noise) for d in self.divergences
        )
        return dataclasses.replace(self, divergences=judged)


@dataclass(frozen=True, slots=True)
class Verification:
    """All of it."""

    batch_noise: float
    """Largest difference of a logit between passes of one and of several tokens, seen here."""
    typical_noise: float
    """Median over positions of the largest difference."""
    comparisons: tuple[SettingComparison, ...]
    widths: dict[int, int]
    """Passes of all replies, plain ones too, by their tokens."""
    strict: bool = False
    """Whether strict mode promised that logits do not differ at all."""

    @property
    def exact(self) -> bool:
        """Whether every divergence is a near-tie, or, in strict mode, nothing differs."""
        if self.strict and (self.batch_noise or any(c.divergences for c in self.comparisons)):
            return False
        return all(d.near_tie for c in self.comparisons for d in c.divergences)


def verify(
    runtime: Runtime,
    prompts: Sequence[str],
    sampling: Sequence[Sampling],
    *,
    max_tokens: int,
    seed: int,
) -> Verification:
    """Compare drafting with plain decoding.

    Raises:
        LocalspecError: a reply failed.
    """
    comparing = Comparing(runtime, prompts, sampling, max_tokens=max_tokens, seed=seed)
    for _ in comparing.steps():
        pass
    return comparing.so_far()


class Comparing:
    """A comparison of drafting with plain decoding that goes on step by step."""

    def __init__(
        self,
        runtime: Runtime,
        prompts: Sequence[str],
        sampling: Sequence[Sampling],
        *,
        max_tokens: int,
        seed: int,
    ) -> None:
        """Compare nothing yet; see `steps`."""
        self._lab = Lab(runtime)
        self._prompts = prompts
        self._sampling = sampling
        self._max_tokens = max_tokens
        self._seed = seed
        self._scorer = Scorer(runtime)
        self._noise: list[float] = []
        self._widths: Counter[int] = Counter()
        self._comparisons: list[SettingComparison] = []

    def steps(self) -> Iterator[SettingComparison]:
        """Compare; the comparison at the current setting before its first prompt and after each.

        Raises:
            LocalspecError: a reply failed.
        """
        for setting in self._sampling:
            self._comparisons.append(SettingComparison(setting.temperature, 0, 0, 0, 0, 0, 0, ()))
            yield self._comparisons[-1]
            for i, prompt in enumerate(self._prompts):
                found = self._compared(self._comparisons[-1], setting, prompt, self._seed + i)
                self._comparisons[-1] = found
                yield found

    def so_far(self) -> Verification:
        """The result of all steps until now; divergences are judged by all noise seen."""
        worst = max(self._noise, default=0.0)
        typical = statistics.median(self._noise) if self._noise else 0.0
        comparisons = tuple(c.judged(worst) for c in self._comparisons if c.replies)
        widths = dict(sorted(self._widths.items()))
        return Verification(
            worst, typical, comparisons, widths, bool(self._lab.runtime.info.strict)
        )

    def _compared(
        self, before: SettingComparison, setting: Sampling, prompt: str, seed: int
    ) -> SettingComparison:
        """One prompt more."""
        lab, most = self._lab, self._max_tokens
        passes = lab.borrow().target.widths
        passes.clear()
        plain = _complete(lab.runtime.answer(_request(prompt, setting, seed, most, draft=False)))
        drafted = _complete(lab.exercise(_request(prompt, setting, seed, most, draft=True)))
        new = [width for width in passes if width > 1 and width not in self._widths]
        self._widths += passes
        self._noise += self._scorer.batch_noise(self._prompts[:_NOISE_PROMPTS], most, new)
        divergences = before.divergences
        if plain.tokens != drafted.tokens:
            worst = max(self._noise, default=0.0)
            found = self._scorer.examine(prompt, plain, drafted, setting, worst)
            divergences = (*divergences, found)
        return SettingComparison(
            temperature=setting.temperature,
            replies=before.replies + 1,
            identical=before.replies + 1 - len(divergences),
            tokens=before.tokens + len(plain.tokens),
            accepted=before.accepted + drafted.stats.accepted,
            verified=before.verified + drafted.stats.verified,
            rounds=before.rounds + drafted.stats.rounds,
            divergences=divergences,
        )


def _request(
    prompt: str, sampling: Sampling, seed: int, max_tokens: int, *, draft: bool
) -> ReplyRequest:
    return ReplyRequest(
        messages=(Message("user", prompt),),
        sampling=sampling,
        seed=seed,
        max_tokens=max_tokens,
        draft=draft,
    )


def _complete(reply: Reply) -> Reply:
    """The reply.

    Raises:
        Interrupted: it was cut short.
    """
    if reply.finish_reason == "interrupt":
        raise Interrupted("interrupted; what was compared is incomplete")
    return reply


class Scorer:
    """Reads given tokens through the target and looks at the logits."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lab = Lab(runtime)
        self._n_vocab = runtime.pair.target_model.n_vocab
        self._replies: dict[str, tuple[int, ...]] = {}
        """Plain greedy replies that noise is measured on."""
        self._single: dict[str, Logits] = {}
        """Their logits from passes over one token."""

    def batch_noise(
        self, prompts: Sequence[str], max_tokens: int, widths: Sequence[int]
    ) -> Iterator[float]:
        """Largest logit difference at each position of plain replies, over passes of ``widths``.

        Each width is measured on `_TEXTS_PER_WIDTH` of the replies, in turns.
        """
        for i, width in enumerate(widths):
            for at in range(min(len(prompts), _TEXTS_PER_WIDTH)):
                prompt = prompts[(i + at) % len(prompts)]
                yield from self._noise_of(prompt, max_tokens, width)

    def _noise_of(self, prompt: str, max_tokens: int, width: int) -> Iterator[float]:
        if prompt not in self._replies:
            greedy = Sampling(temperature=0)
            request = _request(prompt, greedy, 0, max_tokens, draft=False)
            reply = _complete(self._runtime.answer(request))
            self._replies[prompt] = reply.tokens
        reply_tokens = self._replies[prompt]
        text = [*self._runtime.encode([Message("user", prompt)]), *reply_tokens]
        # Two of the widest passes at least, if the reply is too short with the end of the prompt.
        measured = min(len(text) - 1, max(len(reply_tokens), 2 * _WIDEST))
        known, rest = text[:-measured], text[-measured:]
        if prompt not in self._single:
            self._single[prompt] = self._rows(known, rest, 1)
        yield from (
            np.abs(self._single[prompt] - self._rows(known, rest, width)).max(axis=1).tolist()
        )

    def examine(
        self, prompt: str, plain: Reply, drafted: Reply, sampling: Sampling, noise: float
    ) -> Divergence:
        """The gap between the two tokens where two replies differ first."""
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
        target = self._lab.borrow().target
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
        self._runtime.forget()
        return np.concatenate(rows)
