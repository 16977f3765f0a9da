"""Compares replies in company with replies alone: `localspec verify --together N`.

Every prompt is answered alone by plain decoding, and then drafted beside others: with an empty KV
cache, and again with what that left in it. The others have other prompts, lengths and settings;
they begin before the reply and after, and as one ends the next begins. Where a reply diverges, the
target's own scores say whether the two tokens were a near-tie, by the difference that company
makes to the logits here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from localspec.bench.scoring import ComparingReplies, Comparison, all_exact, complete
from localspec.core.errors import LocalspecError
from localspec.core.events import Finished, Reply
from localspec.core.logits import Sampling
from localspec.core.reply_request import ReplyRequest
from localspec.generation.reply_stream import ReplyStream
from localspec.runtime import Runtime

_LENGTHS = (16, 40, 8, 64, 24)
"""Tokens of the others' replies, in turns."""
_TEMPERATURES = (0.8, 0.0, 1.2)
"""Temperatures of the others, in turns."""
_WAITING = 24
"""Others that wait until one of those beside the reply has ended."""
_MEASURED = 6
"""Prompts on which the difference that company makes is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanyComparison(Comparison):
    """One sampling setting over all prompts, with two replies to each: with an empty and with a
    used cache.
    """

    cached: int = 0
    """Tokens of prompts that were in the KV cache."""
    shared: int = 0
    """Others that began or ended while a reply ran, or ran beside it."""


@dataclass(frozen=True, slots=True)
class CompanyVerification:
    """The result of a whole run of `verify --together`."""

    together: int
    noise: float
    """Largest difference of a logit between passes alone and in company, seen here."""
    typical_noise: float
    comparisons: tuple[CompanyComparison, ...]
    strict: bool
    """Whether strict mode promised that nothing differs."""

    @property
    def exact(self) -> bool:
        """See `all_exact`."""
        return all_exact(self.comparisons, self.noise, strict=self.strict)


class Company:
    """Other requests that run beside one, and wait to."""

    def __init__(self, runtime: Runtime, prompts: Sequence[str], together: int) -> None:
        self._runtime = runtime
        self._most = together - 1
        self._requests = _requests(prompts)
        self._streams: list[ReplyStream] = []

    def gather(self) -> None:
        """Submit as many as run beside one."""
        self._submit(self._most)

    def queue(self) -> None:
        """Submit those that begin as others end."""
        self._submit(_WAITING)

    def _submit(self, n: int) -> None:
        self._streams += [self._runtime.submit(next(self._requests)) for _ in range(n)]

    def leave(self) -> int:
        """End all; returns how many of them had begun.

        Raises:
            LocalspecError: one of them failed.
        """
        for stream in self._streams:
            stream.interrupt()
        replies = [_last(stream) for stream in self._streams]
        self._streams.clear()
        return sum(reply is not None and bool(reply.tokens) for reply in replies)


def _requests(prompts: Sequence[str]) -> Iterator[ReplyRequest]:
    """Requests without end, no two in a row alike."""
    for at in itertools.count():
        yield ReplyRequest(
            prompt=prompts[at % len(prompts)],
            sampling=Sampling(temperature=_TEMPERATURES[at % len(_TEMPERATURES)]),
            seed=at,
            max_tokens=_LENGTHS[at % len(_LENGTHS)],
            draft=at % 4 != 0,
        )


def _last(stream: ReplyStream) -> Reply | None:
    """The whole reply; None where its stream was closed."""
    found = None
    for event in stream:
        if isinstance(event, Finished):
            found = event.reply
    return found


@dataclass
class ComparingTogether(ComparingReplies[CompanyComparison]):
    """A comparison of replies in company with plain ones alone. The runtime has at least
    ``together`` sequences; those beside a reply have no pictures.
    """

    together: int = field(kw_only=True)

    def __post_init__(self) -> None:
        """Nothing is compared yet."""
        super().__post_init__()
        self._company = Company(self.runtime, self.prompts, self.together)

    def so_far(self) -> CompanyVerification:
        """The result of all steps until now; divergences are judged by all noise seen."""
        return CompanyVerification(self.together, *self._judged(), bool(self.runtime.info.strict))

    def _begun(self, temperature: float) -> CompanyComparison:
        return CompanyComparison(temperature=temperature)

    def _compared(
        self, before: CompanyComparison, asked: ReplyRequest, prompt: str
    ) -> CompanyComparison:
        """One prompt more, with an empty cache and with a used one."""
        self.runtime.forget()
        plain = complete(self.runtime.answer(replace(asked, draft=False)))
        now = before
        for cached in (False, True):
            reply, shared = self._beside_others(asked, cached=cached)
            found = None
            if reply.tokens != plain.tokens:
                self._measure(prompt, plain)
                found = self.scorer.examine(prompt, plain, reply, asked.sampling, 0.0)
            now = replace(
                now.with_reply(plain, reply, found),
                cached=now.cached + reply.stats.cached_tokens,
                shared=now.shared + shared,
            )
        if prompt in self.prompts[:_MEASURED]:
            self._measure(prompt, plain)
        return now

    def _beside_others(self, asked: ReplyRequest, *, cached: bool) -> tuple[Reply, int]:
        """The reply, and how many others it had beside it. With its prompt ``cached`` it begins
        before the others, else after as many as run beside it.
        """
        self.runtime.forget()
        policy = self.runtime.pair.control.proof
        try:
            if cached:
                complete(self.runtime.answer(replace(asked, draft=False, max_tokens=1)))
                stream = self.runtime.submit(asked, policy=policy)
            self._company.gather()
            if not cached:
                stream = self.runtime.submit(asked, policy=policy)
            self._company.queue()
            last = _last(stream)
        finally:
            shared = self._company.leave()
        if last is None:
            raise LocalspecError("a reply ended without its last event")
        return complete(last), shared

    def _measure(self, prompt: str, plain: Reply) -> None:
        """Add the difference that company makes to the logits of a reply."""
        others = [p for p in self.prompts if p != prompt][: self.together - 1]
        self.noise += self.scorer.company_noise(prompt, plain.tokens, others)
