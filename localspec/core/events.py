"""Events of a reply: small frozen values, the last one `Finished`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from localspec.core.origin import Origin

FinishReason = Literal["stop", "length", "interrupt"]
"""The model or a stop string ended it; a limit did; the user did."""
SpeculationState = Literal["on", "parked", "off"]
"""Drafting; plain decoding because that is faster now; cannot draft."""

LONGEST_BRIEF = 40
"""Characters of a brief reason at most."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Whether drafting happens, and if not, why."""

    state: SpeculationState
    reason: str | None = None
    """In full, with the figures that it rests on."""
    brief: str | None = None
    """The reason in at most `LONGEST_BRIEF` characters, for a line of figures."""

    @property
    def shortest(self) -> str:
        """The brief reason, or the full one where there is none; empty without any."""
        return self.brief or self.reason or ""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Loading:
    """A model file is being loaded."""

    name: str
    fraction: float
    """0 to 1."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The prompt is being read."""

    done: int
    """Tokens in the KV cache, reused ones included."""
    total: int
    cached: int
    """Tokens that were already there from an earlier turn."""


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token."""

    token: int
    text: str
    """May be empty while a character or a possible stop string is incomplete; later text then
    holds it."""
    origin: Origin
    source: str | None
    """The drafter, for accepted tokens."""


@dataclass(frozen=True, slots=True)
class Round:
    """One finished round, after its tokens."""

    drafted: int
    verified: int
    accepted: int
    emitted: int
    draft_seconds: float
    verify_seconds: float
    seconds: float
    """The whole round."""
    source: str
    context_used: int
    """Tokens of the conversation now."""
    speculation: Speculation


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know, in one line."""

    text: str


@dataclass(frozen=True, slots=True)
class DrafterStats:
    """What one drafter contributed."""

    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    seconds: float = 0.0


QUICKEST_PLAIN = 400.0
"""Tokens per second of plain decoding up to which a factor of speeds is given. Of quicker models a
pass takes no longer than the work around it, so that a factor would measure the machine's noise."""


def times_plain(speed: float, plain: float | None) -> float | None:
    """A speed relative to that of plain decoding, both in tokens per second; None if unknown."""
    if not plain or not speed or plain > QUICKEST_PLAIN:
        return None
    return speed / plain


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and times of one reply."""

    prompt_tokens: int
    cached_tokens: int
    emitted: int
    rounds: int
    drafted: int
    verified: int
    accepted: int
    per_position: tuple[float, ...]
    """Acceptance of the i-th drafted token of a chain, given that it was verified."""
    by_drafter: dict[str, DrafterStats]
    prompt_seconds: float
    decode_seconds: float
    draft_seconds: float
    verify_seconds: float
    plain_tokens_per_second: float | None
    """Estimated speed of plain decoding: from the measured seconds of a pass over one token, and
    the time per token of this reply outside passes and drafts. None where neither is known."""
    speculation: Speculation

    @property
    def times_plain(self) -> float | None:
        """Times as fast as plain decoding; None where that is not known or cannot be measured."""
        plain = self.plain_tokens_per_second
        return times_plain(self.tokens_per_second, plain) if self.drafted else None

    @property
    def acceptance(self) -> float:
        """accepted / verified; 0 if nothing was verified."""
        return self.accepted / self.verified if self.verified else 0.0

    @property
    def tokens_per_round(self) -> float:
        """emitted / rounds."""
        return self.emitted / self.rounds if self.rounds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """emitted / decode_seconds."""
        return self.emitted / self.decode_seconds if self.decode_seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply."""

    text: str
    tokens: tuple[int, ...]
    origins: tuple[Origin, ...]
    finish_reason: FinishReason
    stats: Stats
    seed: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of the stream; nothing follows."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate token for one position."""

    token: int
    text: str
    p: float
    """By the target after logits processing; one token has it all at temperature 0."""
    q: float | None
    """By the draft model, after the same processing; None where there is none to ask."""
    model: float
    """By the target before any processing: the softmax of its logits."""


@dataclass(frozen=True, slots=True)
class Examination:
    """One position of a reply, computed again. Logits may differ in their last bits."""

    chosen: Candidate
    """The token of the reply."""
    candidates: tuple[Candidate, ...]
    """The likeliest, best first."""
    gap: float | None
    """Distance between the chosen token and the rival for the target's choice, in
    logits; infinite beyond 32, None where no rival was named."""


ReplyEvent = Reading | Token | Round | Notice | Finished
"""What a reply is made of; the last one is `Finished`."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What was loaded, for the interface and for ``run --json``."""

    target: str
    """Path of the target file."""
    draft: str | None
    backend: str
    """cpu, cuda, metal or vulkan."""
    context: int
    """Tokens that fit."""
    name: str
    """Name that the user gave."""
    target_bytes: int
    draft_bytes: int
    threads: int
    speculation: Speculation
    notices: tuple[str, ...] = field(default=())
    drafters: tuple[str, ...] = ()
    """Names of those that draft, in order of preference."""
    strict: str = ""
    """How strict mode computes, as its self-test has shown it exact here; "" without it."""
    kernels: str = ""
    """Which kernels compute the target on the processor, and why (`localspec.loading.kernels`)."""
