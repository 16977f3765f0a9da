"""Comparisons of drafted with plain replies, and the target's own logits about what diverges: given
tokens are read through it, for near-ties and batch noise.
"""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Self, TypeVar

import numpy as np

from localspec.bench.lab import Lab
from localspec.core.errors import Interrupted
from localspec.core.events import SAFETY, Message, Reply
from localspec.core.logits import Sampling
from localspec.core.media_rows import after, has_rows
from localspec.core.noise import Noise
from localspec.core.picture import Picture
from localspec.core.reply_request import ReplyRequest
from localspec.core.target import Work
from localspec.core.values import Draft, Logits, Proposal, chain_parents, no_draft
from localspec.decode.target_choice import TargetChoice
from localspec.generation.processing import Processing
from localspec.runtime import Runtime

_SEQ = 0
_TEXTS_PER_WIDTH = 2
_WIDEST = 32
"""Tokens of the widest pass that a chat makes, but for long drafts that were asked for."""
_IN_COMPANY = (1, 4)
"""Widths of passes in company."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Replies at one temperature, compared with plain ones."""

    temperature: float
    replies: int = 0
    tokens: int = 0
    accepted: int = 0
    verified: int = 0
    divergences: tuple[Divergence, ...] = ()

    @property
    def identical(self) -> int:
        """Replies without a divergence."""
        return self.replies - len(self.divergences)

    @property
    def acceptance(self) -> float:
        """accepted / verified."""
        return self.accepted / self.verified if self.verified else 0.0

    def with_reply(self, plain: Reply, drafted: Reply, found: Divergence | None) -> Self:
        """The same and one reply more, with the divergence of a drafted one, if there is one."""
        return replace(
            self,
            replies=self.replies + 1,
            tokens=self.tokens + len(plain.tokens),
            accepted=self.accepted + drafted.stats.accepted,
            verified=self.verified + drafted.stats.verified,
            divergences=self.divergences if found is None else (*self.divergences, found),
        )

    def judged(self, noise: float) -> Self:
        """The same with each divergence judged by this noise."""
        judged = tuple(replace(d, near_tie=d.gap <= SAFETY * noise) for d in self.divergences)
        return replace(self, divergences=judged)


def all_exact(comparisons: Sequence[Comparison], noise: float, *, strict: bool) -> bool:
    """Whether every divergence is a near-tie, or, in strict mode, nothing differs."""
    found = [d for c in comparisons for d in c.divergences]
    return not (noise or found) if strict else all(d.near_tie for d in found)


def request_of(
    prompt: str,
    sampling: Sampling,
    seed: int,
    max_tokens: int,
    *,
    draft: bool,
    pictures: tuple[Picture, ...] = (),
) -> ReplyRequest:
    """A request with a prompt, and ``pictures`` before it."""
    return ReplyRequest(
        messages=(message_of(prompt, pictures),),
        sampling=sampling,
        seed=seed,
        max_tokens=max_tokens,
        draft=draft,
    )


def message_of(prompt: str, pictures: tuple[Picture, ...] = ()) -> Message:
    """The message with a prompt, and ``pictures`` before it."""
    return Message("user", f"\n{prompt}" if pictures else prompt, pictures=pictures)


def complete(reply: Reply) -> Reply:
    """The reply.

    Raises:
        Interrupted: it was cut short.
    """
    if reply.finish_reason == "interrupt":
        raise Interrupted("interrupted; what was compared is incomplete")
    return reply


class Scorer:
    """Reads given tokens through the target and looks at the logits."""

    def __init__(self, runtime: Runtime, pictures: tuple[Picture, ...] = ()) -> None:
        """``pictures`` are in front of every prompt."""
        self._runtime = runtime
        self._pictures = pictures
        self._lab = Lab(runtime)
        self._processing = Processing(runtime.pair.target_model)
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
            request = request_of(
                prompt, greedy, 0, max_tokens, draft=False, pictures=self._pictures
            )
            reply = complete(self._runtime.answer(request))
            self._replies[prompt] = reply.tokens
        reply_tokens = self._replies[prompt]
        text = [*self._encode(prompt), *reply_tokens]
        # Two of the widest passes at least, if the reply is too short with the end of the prompt.
        measured = min(len(text) - 1, max(len(reply_tokens), 2 * _WIDEST))
        while has_rows(text[-measured - 1 :]):  # there are no logits of pictures
            measured -= 1
        known, rest = text[:-measured], text[-measured:]
        if prompt not in self._single:
            self._single[prompt] = self._rows(known, rest, 1)
        yield from (
            np.abs(self._single[prompt] - self._rows(known, rest, width)).max(axis=1).tolist()
        )

    def company_noise(
        self, prompt: str, reply: Sequence[int], others: Sequence[str]
    ) -> Iterator[float]:
        """Largest logit difference at each position of a reply, between single tokens alone and
        passes of `_IN_COMPANY` tokens beside the beginnings of ``others``.
        """
        text = self._encode(prompt)
        alone = self._rows(text, list(reply), 1)
        for width in _IN_COMPANY:
            beside = [self._encode(other) for other in others]
            found = self._rows(text, list(reply), width, beside)
            yield from np.abs(alone - found).max(axis=1).tolist()

    def examine(
        self, prompt: str, plain: Reply, drafted: Reply, sampling: Sampling, noise: float
    ) -> Divergence:
        """The gap between the two tokens where two replies differ first."""
        pairs = zip(plain.tokens, drafted.tokens, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if at is None:  # one goes on where the other ends, after the same tokens: never a near-tie
            at = max(0, min(len(plain.tokens), len(drafted.tokens)) - 1)
            last = (plain.tokens or drafted.tokens)[at]
            return Divergence(prompt, at, last, last, np.inf, near_tie=False)
        a, b = plain.tokens[at], drafted.tokens[at]
        tokens = self._encode(prompt)
        rows = self._rows(tokens, list(plain.tokens[: at + 1]), 1)
        row, own = rows[-1], Noise(plain.seed)
        processor = self._processing.processor(sampling, own, None)
        if processor.moves:
            for i, token in enumerate(plain.tokens[:at]):
                p = processor(rows[i], [*tokens, *plain.tokens[:i]])
                processor = processor.after(p, token)
        gap = TargetChoice([*tokens, *plain.tokens[:at]], processor, own).gap(row, (a, b))
        return Divergence(prompt, at, a, b, gap, near_tie=gap <= SAFETY * noise)

    def _encode(self, prompt: str) -> list[int]:
        return self._runtime.encode([message_of(prompt, self._pictures)])

    def _rows(
        self,
        prompt: list[int],
        reply: list[int],
        width: int,
        others: Sequence[list[int]] = (),
    ) -> Logits:
        """Logits (len(reply), V) that chose each token of a reply, read ``width`` at a time.

        ``others`` are in the next sequences: half of each is read before, and it is gone through
        again and again beside the reply.
        """
        target = self._lab.borrow().target
        target.read(_SEQ, prompt[:-1])
        for seq, other in enumerate(others, _SEQ + 1):
            target.read(seq, other[: after(other, len(other) // 2)])
        starts = {seq: target.length(seq) for seq in range(_SEQ + 1, _SEQ + 1 + len(others))}
        tokens = [prompt[-1], *reply[:-1]]
        rows = []
        for i in range(0, len(tokens), width):
            run = tokens[i : i + width]
            beside = [_run(seq, others[seq - 1][-width:]) for seq in starts]
            scores = target.score([_run(_SEQ, run), *beside])
            rows.append(scores[0].logits.copy())
            target.keep(_SEQ, range(len(run) - 1))
            for seq, start in starts.items():
                target.keep(seq, ())
                if target.can_truncate(seq, start):
                    target.truncate(seq, start)
                else:  # a recurrent state, of which no more is kept
                    target.truncate(seq, 0)
                    target.read(seq, others[seq - 1][:start])
        self._runtime.forget()
        return np.concatenate(rows)


def _run(seq: int, tokens: Sequence[int]) -> Work:
    """A pending token and the rest as its draft."""
    pending, *rest = tokens
    if not rest:
        return Work(seq, pending, no_draft("verify"))
    ids, parents = np.array(rest, np.int32), chain_parents(len(rest))
    return Work(seq, pending, Draft(ids, parents, Proposal.DETERMINISTIC, None, "verify"))


_Row = TypeVar("_Row", bound=Comparison)


@dataclass
class ComparingReplies(ABC, Generic[_Row]):
    """A comparison with plain replies that goes on prompt by prompt; see `steps`."""

    runtime: Runtime
    prompts: Sequence[str]
    sampling: Sequence[Sampling]
    max_tokens: int = field(kw_only=True)
    seed: int = field(kw_only=True)
    pictures: tuple[Picture, ...] = field(default=(), kw_only=True)
    """In front of every prompt that is compared."""
    noise: list[float] = field(default_factory=list, init=False)
    rows: list[_Row] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Nothing is compared yet."""
        self.scorer = Scorer(self.runtime, self.pictures)

    def steps(self) -> Iterator[_Row]:
        """Compare; the comparison at the current setting before its first prompt and after each.

        Raises:
            LocalspecError: a reply failed.
        """
        for setting in self.sampling:
            self.rows.append(self._begun(setting.temperature))
            yield self.rows[-1]
            for seed, prompt in enumerate(self.prompts, self.seed):
                most, pictures = self.max_tokens, self.pictures
                asked = request_of(prompt, setting, seed, most, draft=True, pictures=pictures)
                self.rows[-1] = self._compared(self.rows[-1], asked, prompt)
                yield self.rows[-1]

    @abstractmethod
    def _begun(self, temperature: float) -> _Row:
        """A row without replies."""

    @abstractmethod
    def _compared(self, before: _Row, asked: ReplyRequest, prompt: str) -> _Row:
        """One prompt more."""

    def _judged(self) -> tuple[float, float, tuple[_Row, ...]]:
        """The largest and the median noise that was seen, and all rows judged by the largest."""
        worst = max(self.noise, default=0.0)
        typical = statistics.median(self.noise) if self.noise else 0.0
        return worst, typical, tuple(row.judged(worst) for row in self.rows if row.replies)
