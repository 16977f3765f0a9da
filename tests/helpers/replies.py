"""Helpers of tests of whole replies."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from localspec import Finished, Message, Reply, ReplyRequest, Runtime, Sampling
from localspec.core.events import Speculation, Stats
from localspec.core.interrupt import Interrupt
from localspec.core.plan import DraftPlan, Evidence, Outcome, RequestState
from localspec.policy import Policy
from localspec.policy.costs import Costs

HELLO = [Message("user", "Hello there, hello there, hello")]
WARM = Sampling(temperature=1.0)
ENDLESS = tuple((token, -100.0) for token in range(3))
"""A bias against the tokens that end a reply."""
STATS = Stats(
    prompt_tokens=1,
    cached_tokens=0,
    emitted=60,
    rounds=20,
    drafted=0,
    verified=0,
    accepted=0,
    per_position=(),
    by_drafter={},
    prompt_seconds=0.0,
    decode_seconds=1.0,
    draft_seconds=0.0,
    verify_seconds=0.0,
    speculation=Speculation("on"),
)
"""Sixty tokens in twenty rounds and a second, none of them drafted."""


class StopAfter:
    """A policy that interrupts its reply once it has so many tokens, in the thread that decodes:
    whoever reads the events comes too late for a small model.
    """

    def __init__(self, policy: Policy, tokens: int) -> None:
        self._policy = policy
        self._tokens = tokens
        self.interrupt = Interrupt()

    def speculation_of(self, seq: int) -> Speculation:
        return self._policy.speculation_of(seq)

    @property
    def costs(self) -> Costs | None:
        return self._policy.costs

    def decide_reading(self, state: RequestState) -> bool:
        return self._policy.decide_reading(state)

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        if any(state.emitted >= self._tokens for state in states):
            self.reached()
        return self._policy.plan(states)

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        self._policy.learn(outcomes, evidence)

    def reached(self) -> None:
        """The reply has its tokens; called between two rounds, in the thread that decodes."""
        self.interrupt.set()


class WaitAfter(StopAfter):
    """A policy that holds its reply, once it has so many tokens, until something aborts the pass
    to come: an interrupt, or a runtime that closes. The reply cannot run ahead of the test.
    """

    def __init__(self, runtime: Runtime, tokens: int) -> None:
        super().__init__(runtime.pair.control.policy, tokens)
        self._stop = runtime.pair.stop

    def reached(self) -> None:
        """Wait."""
        until = time.monotonic() + 100
        while not self._stop.is_set():
            assert time.monotonic() < until, "nothing stopped the reply"
            time.sleep(0.001)


def last(events: Iterable[object]) -> Reply:
    """The reply that a stream of events ends with."""
    *_, end = events
    assert isinstance(end, Finished)
    return end.reply


def cold_and_warm(runtime: Runtime, *, draft: bool) -> list[tuple[int, ...]]:
    """The tokens of two replies without end, at the temperatures 0 and 0.9."""
    found = []
    for temperature in (0.0, 0.9):
        sampling = Sampling(temperature=temperature, logit_bias=ENDLESS)
        more = {"seed": 4, "max_tokens": 40, "draft": draft}
        request = ReplyRequest(prompt="The rain", sampling=sampling, **more)
        found.append(runtime.answer(request).tokens)
    return found


def exact(runtime: Runtime, sampling: Sampling, max_tokens: int = 48, seed: int = 7) -> Reply:
    """A drafted reply, whose text was compared with that of plain decoding."""
    settings = {"sampling": sampling, "seed": seed, "max_tokens": max_tokens}
    plain = last(runtime.reply(HELLO, draft=False, **settings))
    drafted = last(runtime.reply(HELLO, **settings))
    assert list(drafted.tokens) == list(plain.tokens)
    assert drafted.text == plain.text
    return drafted
