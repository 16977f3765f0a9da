"""Events of a reply: small frozen values, the last one `Finished`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from localspec.core import json_text
from localspec.core.emitted import Origin, PromptScored, TokenLogprobs
from localspec.core.errors import UsageError
from localspec.core.picture import Picture
from localspec.core.round_counts import DrafterStats, RoundFigures

FinishReason = Literal["stop", "length", "interrupt"]
"""The model or a stop string ended it; a limit did; the user did."""
SpeculationState = Literal["on", "parked", "off", "unknown"]
"""Drafting; plain decoding because that is faster now; cannot draft; a server does not tell."""

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
class MessageCall:
    """A call of a tool in a message of the assistant."""

    id: str
    name: str
    arguments: str
    """A JSON object."""

    def __post_init__(self) -> None:
        try:
            sound = isinstance(json_text.read(self.arguments), dict)
        except ValueError:
            sound = False
        if not sound:
            raise UsageError(f"the arguments of a call of {self.name!r} are not a JSON object")


Role = Literal["system", "developer", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. The chats on disk have system, user and assistant alone."""

    role: Role
    content: str
    reasoning: str = ""
    """The assistant's thinking; most templates leave out that of earlier turns."""
    calls: tuple[MessageCall, ...] = ()
    """The assistant's calls of tools, after its content."""
    call_id: str = ""
    """The call whose result a tool's message is."""
    name: str = ""
    """The tool whose result this is, where it is known."""
    pictures: tuple[Picture, ...] = ()
    """Pictures of a user's message, or of a tool's result, in the order of their places."""

    def __post_init__(self) -> None:
        content: object = self.content
        if not isinstance(content, str):
            kind = type(content).__name__
            raise UsageError(f"the content of a message must be a text, not {kind}")


@dataclass(frozen=True, slots=True)
class ReplyFormat:
    """How the text of a reply is divided: the first event of requests with ``markers``."""

    thinking: tuple[str, ...] = ()
    """The marker that begins the thinking, then those that may end it; empty where the chat
    template has none."""
    thinks: bool = False
    """Whether the prompt has begun the thinking already."""
    tools: str | None = None
    """Name of the way to call tools, of `localspec.grammar.tool_families`; None without tools."""


@dataclass(frozen=True, slots=True)
class Loading:
    """A model file is being loaded, or something is done before, once."""

    name: str
    """The file, or what is done."""
    fraction: float | None
    """0 to 1; None where nothing tells, as while kernels are compiled."""

    @property
    def text(self) -> str:
        """For users."""
        if self.fraction is None:
            return self.name
        return f"loading {self.name} {self.fraction:.0%}"


@dataclass(frozen=True, slots=True)
class Reading:
    """The prompt is being read."""

    done: int
    """Tokens in the KV cache, reused ones included."""
    total: int
    cached: int
    """Tokens that were read before, for an earlier turn or another conversation."""
    saved_seconds: float = 0.0
    """See `Stats.saved_seconds`."""
    encoding: bool = False
    """Whether a picture is being encoded; its rows come next."""


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
    logprobs: TokenLogprobs | None = None
    """The target's, where the request asked for them, also for drafted tokens."""


QUICKEST_PLAIN = 400.0
"""Tokens per second of plain decoding up to which speeds are compared. A pass of a quicker model
takes no longer than the work around it, which differs between the two ways of decoding."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """The speed of a reply relative to plain decoding at the same time."""

    factor: float
    error: float
    """Relative, two standard errors: a difference within it may be noise."""

    @property
    def verdict(self) -> Literal["faster", "slower", "same", "unknown"]:
        """The claim that the measurement supports; ``unknown`` where the machine was too noisy."""
        if self.factor <= 0:  # no measurement, but what a server or a file may say
            return "unknown"
        if self.factor > 1 + self.error:
            return "faster"
        if self.factor * (1 + self.error) < 1:
            return "slower"
        return "same" if self.error <= _LARGEST_ERROR else "unknown"

    @property
    def text(self) -> str:
        """The verdict in words; empty where it is unknown."""
        match self.verdict:
            case "faster":
                return f"{self.factor:.1f}× faster"
            case "slower":
                return f"{1 / self.factor:.1f}× slower"
            case "same":
                return "about as fast as plain"
            case "unknown":
                return ""


_LARGEST_ERROR = 0.15
"""Largest relative error at which two speeds are called about the same."""


@dataclass(frozen=True, slots=True)
class Round(RoundFigures):
    """One finished round, after its tokens."""

    context_used: int
    """Tokens of the conversation now; 0 where a server has not told those of the prompt yet."""
    speculation: Speculation
    speedup: Speedup | None = None
    """Speed of the reply so far relative to plain decoding; None where that is not known."""


LEFT_OUT = "oldest messages were left out"
"""The end of the notice about a conversation that is longer than the context."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know, in one line."""

    text: str


Clock = Literal["engine", "arrivals", "request"]


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
    """Acceptance at the i-th place of a draft, given that it was judged: see `RoundCounts`."""
    by_drafter: dict[str, DrafterStats]
    prompt_seconds: float
    decode_seconds: float
    draft_seconds: float
    verify_seconds: float
    speculation: Speculation
    speedup: Speedup | None = None
    """None where nothing was drafted, or too little to compare, or the model is too quick."""
    saved_seconds: float = 0.0
    """Seconds that reading the cached tokens would have taken, less those of restoring them;
    estimated from the measured speed of reading."""
    accepted_prediction_tokens: int = 0
    """Tokens of the request's prediction that the reply has, in their order."""
    rejected_prediction_tokens: int = 0
    """Tokens of the prediction that the reply does not have."""
    clock: Clock = "engine"
    """What `decode_seconds` was read from: the engine's own clock, the arrival of the tokens at
    this end, or only the whole request, with the reading of its prompt."""

    with_prompt: int = 0
    """Emitted tokens whose pass read the end of the prompt too: its seconds are the prompt's."""

    @property
    def plain_tokens_per_second(self) -> float | None:
        """Estimated speed of plain decoding during this reply; its own speed where nothing was
        drafted, None where that is not known.
        """
        if self.speedup is not None and self.speedup.factor > 0:
            return self.tokens_per_second / self.speedup.factor
        if self.drafted or self.speculation.state == "unknown":
            return None
        return self.tokens_per_second or None

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
        """Tokens after those of the prompt's last pass, by decode_seconds."""
        return self.timed / self.decode_seconds if self.decode_seconds > 0 else 0.0

    @property
    def timed(self) -> int:
        """Tokens that decode_seconds are the time of."""
        return self.emitted - self.with_prompt


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply."""

    text: str
    tokens: tuple[int, ...]
    origins: tuple[Origin, ...]
    finish_reason: FinishReason
    stats: Stats
    seed: int
    stop_text: str | None = None
    """The stop text that ended it; None where the model did, or something else."""
    valid: bool = True
    """False where it ended before its grammar was complete."""


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
    """Target's probability after logits processing; at temperature 0 one token has 1."""
    q: float | None
    """Draft model's probability after the same processing; None without a draft model."""
    model: float
    """Target's probability before any processing: the softmax of its logits."""


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


SAFETY = 2.0
"""A gap of up to this multiple of the noise is a near-tie: two tokens may move, opposite ways."""

ReplyEvent = ReplyFormat | Reading | PromptScored | Token | Round | Notice | Finished
"""The events of a reply; the last one is `Finished`."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The loaded pair, for the interface and for ``run --json``."""

    target: str
    """Path of the target file."""
    draft: str | None
    backend: str
    """cpu, cuda, metal or vulkan; the name of the engine where that is another one than ours."""
    context: int
    """Tokens that fit; 0 where a server does not tell."""
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
    parallel: int = 1
    """Requests that are answered at the same time; others wait."""
    bos: str = ""
    """The token that prompts begin with, as text; "" where none is added."""
    eos: str = ""
    """The token that ends a text, as text; "" where there is none."""
    sees: bool = False
    """Whether there is a projector, with which the target sees pictures."""
    hears: bool = False
    """Whether there is one with which it hears sounds."""
    switches_thinking: bool | None = None
    """Whether thinking can be switched on and off; None where a server does not tell."""
