"""What the search on real models asks: conversations, what is asked beside them, and how an answer
differs from that of plain decoding.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from faults.settings import further, sampling
from localspec import Finished, Message, Reply, ReplyRequest, Runtime
from localspec.core.adapter_list import AdapterUse
from localspec.core.emitted import LogprobsMode, TokenLogprobs
from localspec.core.events import Token
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.interrupt import Interrupt
from localspec.core.sampling_params import Sampling

LETTERS = range(3 + ord("a") - ord("!"), 3 + ord("z") - ord("!") + 1)
"""Tokens of the byte vocabulary that are letters: replies of these are cut into tokens as they
were."""
_OTHERS = tuple((i, -math.inf) for i in range(259) if i not in LETTERS and i != 2)
_ENDLESS = (*_OTHERS, (2, -math.inf))
NEAR = 0.1
"""Logits: passes of different widths differ by up to a fifth of this on these models."""
_NEAR_PROCESSED = 0.6
"""The same divided by the lowest temperature, and twice, since a token may be at the border of what
is left."""
_STEPS = ("ask", "ask", "again", "edit", "resume")
_GRAMMARS = ("[a-h]{3,20}(yes|no)", "(ab|abc|abcd){2,9}z")
_SOME = "abcdefgh "
_STEMS = tuple("".join(random.Random(n).choices(_SOME, k=n)) for n in (20, 60, 150))
"""What texts beside conversations begin with: they share caches and memories."""
_MODES: tuple[LogprobsMode, ...] = ("raw", "processed")


@dataclass(frozen=True)
class Extras:
    """What few requests ask for."""

    stop: tuple[str, ...] = ()
    grammar: str | None = None
    """A regular expression."""
    owner: str = ""
    recalls: bool = False
    """Whether drafts may be copied from earlier requests of the owner."""
    predicts: bool = False
    """Whether it tells what the reply will be like."""
    logprobs: int | None = None
    mode: LogprobsMode = "raw"
    scales: tuple[float, ...] | None = None
    """Scales of the adapters; None: as they were loaded."""


USUAL = Extras()


@dataclass(frozen=True)
class Aside:
    """A request of its own beside those of a conversation."""

    prompt: str
    sampling: Sampling
    seed: int
    extras: Extras


@dataclass(frozen=True)
class Step:
    """One request of a conversation, after what happens before it."""

    kind: str
    """ask: the next question; again: the same once more; edit: an earlier question changed; resume:
    both programs are started anew, with states from disk, before the next question."""
    words: int
    """Words of the question."""
    seed: int
    max_tokens: int
    interrupt: int | None
    """Round before whose pass the user interrupts."""
    fresh: bool = False
    """Whether plain decoding reads all prompts anew: else it has caches too."""
    extras: Extras = USUAL
    asides: tuple[Aside, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What came of a request."""

    reply: Reply
    shown: str
    """The text of its stream."""
    logprobs: tuple[TokenLogprobs | None, ...]


def any_sampling(rng: random.Random) -> Sampling:
    """Without Mirostat: a place under it cannot be examined, and so no near-tie be told."""
    usual = sampling(rng, LETTERS)
    return replace(further(rng, usual), mirostat=0) if rng.random() < 0.3 else usual


def any_step(rng: random.Random, *, first: bool, long: bool, adapters: bool, beside: int) -> Step:
    """Any step; of the first ones some are ``long``."""
    stopped = rng.random() < 0.3
    return Step(
        "ask" if first else rng.choice(_STEPS),
        1645 if first and long else rng.choice([1, 3, 8, 15]),
        rng.randrange(1 << 32),
        rng.choice([1, 5, 20, 60]),
        rng.randrange(12) if stopped else None,
        rng.random() < 0.5,
        _extras(rng, adapters=adapters),
        tuple(_aside(rng, adapters=adapters) for _ in range(beside)),
    )


def _aside(rng: random.Random, *, adapters: bool) -> Aside:
    stem = rng.choice(_STEMS)
    prompt = stem[: rng.randint(5, len(stem))] + "".join(rng.choices(_SOME, k=rng.choice([0, 4])))
    extras = _extras(rng, adapters=adapters)
    return Aside(prompt, any_sampling(rng), rng.randrange(1 << 32), extras)


def _extras(rng: random.Random, *, adapters: bool) -> Extras:
    scales = rng.choice([None, None, (0.0, 0.0), (0.6, 0.0), (0.2, -0.4)])
    return Extras(
        rng.choice([(), (), (), ("e",), ("ab", "zz", "q")]),
        rng.choice([None, None, None, None, *_GRAMMARS]),
        rng.choice(["", "", "", "one"]),
        rng.random() < 0.7,
        rng.random() < 0.3,
        rng.choice([None, None, 0, 3]),
        rng.choice(_MODES),
        scales if adapters else None,
    )


def request(
    asked: Sequence[Message] | str,
    settings: Sampling,
    seed: int,
    max_tokens: int,
    extras: Extras,
    *,
    ends: bool,
    adapters: Sequence[str],
) -> ReplyRequest:
    """A request for letters, and for what ends a reply where it ``ends``."""
    letters = (*(_OTHERS if ends else _ENDLESS), *settings.logit_bias)
    bias = () if extras.grammar is not None else letters  # which may forbid what must be said
    uses = None
    if extras.scales is not None:
        uses = tuple(AdapterUse(*one) for one in zip(adapters, extras.scales, strict=True))
    return ReplyRequest(
        () if isinstance(asked, str) else tuple(asked),
        asked if isinstance(asked, str) else None,
        sampling=replace(settings, logit_bias=bias),
        seed=seed,
        max_tokens=max_tokens,
        stop=extras.stop,
        grammar=None if extras.grammar is None else GrammarSpec.regex(extras.grammar),
        owner=extras.owner,
        draft_memory=extras.recalls,
        logprobs=extras.logprobs,
        logprobs_mode=extras.mode,
        adapters=uses,
    )


def answers(
    runtime: Runtime, requests: Sequence[ReplyRequest], stop: Interrupt | None = None
) -> list[Answer]:
    """The answers to some requests at once; ``stop`` is that of the first one."""
    streams = [runtime.submit(one, None if number else stop) for number, one in enumerate(requests)]
    found = []
    for stream in streams:
        *events, end = stream
        assert isinstance(end, Finished)
        tokens = [event for event in events if isinstance(event, Token)]
        shown = "".join(token.text for token in tokens)
        found.append(Answer(end.reply, shown, tuple(token.logprobs for token in tokens)))
    return found


def difference(plain: Runtime, asked: ReplyRequest, drafted: Answer, right: Answer) -> str | None:
    """What of an answer plain decoding does not give; ``right`` is its own, of as many tokens."""
    one, other = drafted.reply, right.reply
    pairs = enumerate(zip(one.tokens, other.tokens, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), None)
    if at is None:
        return _told_otherwise(asked, drafted, right)
    gap = plain.examine(asked, other.tokens[: at + 1], one.tokens[at]).gap
    assert gap is not None
    if gap <= NEAR:
        return None
    return f"token {at} is {one.tokens[at]}, plain {other.tokens[at]}: {gap:.2g} apart"


def _told_otherwise(asked: ReplyRequest, drafted: Answer, right: Answer) -> str | None:
    """What of an answer with the same tokens is another."""
    one, other = drafted.reply, right.reply
    if len(one.tokens) != len(other.tokens):
        return f"{len(other.tokens)} tokens plain, {len(one.tokens)} drafted"
    if drafted.shown != one.text:
        return f"its stream has {drafted.shown!r}, its text is {one.text!r}"
    if one.finish_reason != "interrupt" and _ended(one) != _ended(other):
        return f"it ended with {_ended(one)}, plain {_ended(other)}"
    limit = NEAR if asked.logprobs_mode == "raw" else _NEAR_PROCESSED
    for i, (a, b) in enumerate(zip(drafted.logprobs, right.logprobs, strict=True)):
        if not _like(a, b, limit):
            return f"token {i} has {a}, plain {b}"
    return None


def _ended(reply: Reply) -> tuple[object, ...]:
    s = reply.stats
    counts = (s.prompt_tokens, s.emitted, s.accepted_prediction_tokens)
    return (reply.text, reply.finish_reason, reply.stop_text, reply.valid, *counts)


def _like(one: TokenLogprobs | None, other: TokenLogprobs | None, limit: float) -> bool:
    if one is None or other is None:
        return one is other
    a, b = one.chosen.logprob, other.chosen.logprob
    return a == b or abs(a - b) <= limit
