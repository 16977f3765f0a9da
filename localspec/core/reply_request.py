"""One request for a reply: the value that all layers pass on, from the command line to decoding.

Without numpy: an interface starts sooner that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.core import json_text
from localspec.core import settings_schema as schema
from localspec.core.adapter_list import AdapterUse
from localspec.core.drafter_registry import OFF
from localspec.core.emitted import MOST_ALTERNATIVES, LogprobsMode
from localspec.core.errors import UsageError
from localspec.core.events import Message, ReplyEvent
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.infill import Infill
from localspec.core.picture import MOST_PICTURES
from localspec.core.sampling_params import Sampling

_NUMBER = 8
"""Characters of a number, roughly."""
MOST_STOP = 8192
"""Characters of all stop texts of a request."""
MOST_STOPS = 64
"""Stop texts of a request."""


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """A conversation, a raw prompt or a text with a gap, and how to sample the reply."""

    messages: tuple[Message, ...] = ()
    """The whole conversation; the part in the KV cache is not read again."""
    prompt: str | None = None
    """A text to continue without a chat template, instead of messages."""
    sampling: Sampling = Sampling()  # noqa: RUF009 - frozen
    seed: int | None = None
    """Seed of the noise; None: one is drawn and reported with the reply."""
    max_tokens: int | None = None
    """Most tokens to emit; None: as many as the context has room for. 0: the prompt is read, and
    scored with ``prompt_logprobs``."""
    stop: tuple[str, ...] = ()
    """Texts that end the reply; they are not part of it."""
    draft: bool = True
    """False: plain decoding."""
    verifier: str | None = None
    """Accepts or rejects drafted tokens; None: the one that the model was loaded with."""
    grammar: GrammarSpec | None = None
    """The grammar that the reply must follow; None: any text."""
    thinking: bool | None = None
    """Whether the model thinks first, where its template has a switch; None: the template's way."""
    tools: str | None = None
    """Tools that the chat template tells the model of: a JSON list of OpenAI's tool objects.
    A grammar of the kind "tools" is what makes the model's calls well formed."""
    template_arguments: str | None = None
    """Further variables of the chat template: a JSON object."""
    markers: bool = False
    """Whether the markers of thinking and of calls stay in the text where they are special tokens;
    the first event is then a `ReplyFormat`."""
    drop_oldest: bool = True
    """Whether the oldest messages are left out of a conversation that does not fit; else it is
    refused."""
    owner: str = ""
    """Whose request it is: what was read for one owner is never reused for another."""
    prompt_tokens: tuple[int, ...] | None = None
    """Token ids to continue, instead of messages or a prompt; nothing is added to them."""
    logprobs: int | None = None
    """Number of top alternatives that come with each token, at most `MOST_ALTERNATIVES`; 0: the
    log-probability of the token alone; None: none."""
    logprobs_mode: LogprobsMode = "raw"
    """Before or after logits processing; those of the prompt are always raw."""
    prompt_logprobs: int | None = None
    """The same number for each token of the prompt, which is then read from its first token on."""
    prediction: str | None = None
    """A text that the reply is expected to be much like: it is drafted from, which changes the
    speed and never the reply's distribution."""
    drafter: str | None = None
    """Which of the loaded drafters may draft besides the prediction, separated by commas; "off":
    plain decoding; None: all of them."""
    draft_max: int | None = None
    """Most tokens of a draft, one after the other; None: as many as the model was loaded with."""
    draft_memory: bool = False
    """Whether drafts may copy from earlier requests of the owner that had this too, and later ones
    from this one. Off by default: a request that is repeated, to compare speeds, would be drafted
    from its own earlier reply."""
    adapters: tuple[AdapterUse, ...] | None = None
    """The loaded adapters to compute with, and their scales; None: as the model was loaded."""
    infill: Infill | None = None
    """A gap in a text to be filled, instead of messages, a prompt or tokens."""

    def __post_init__(self) -> None:
        schema.SEED.require(self.seed)
        if self.max_tokens != 0:
            schema.MAX_TOKENS.require(self.max_tokens)
        if self.verifier is not None:
            schema.VERIFIER.require(self.verifier)
        prompts = (self.prompt, self.prompt_tokens, self.infill)
        if bool(self.messages) + sum(prompt is not None for prompt in prompts) > 1:
            raise UsageError(
                "a request has messages, a raw prompt, prompt tokens or a gap to fill, one of them"
            )
        _require_texts("prompt", self.prompt)
        _require_texts("prediction", self.prediction)
        _require_all("messages", self.messages, Message)
        _require_all("stop", self.stop, str)
        if self.adapters is not None:
            _require_all("adapters", self.adapters, AdapterUse)
        _require_stops(self.stop)
        if not isinstance(self.grammar, GrammarSpec | None):
            raise UsageError("the grammar must be a GrammarSpec, such as GrammarSpec.regex(...)")
        _require_alternatives("logprobs", self.logprobs)
        _require_alternatives("prompt_logprobs", self.prompt_logprobs)
        schema.DRAFTER.require(self.drafter)
        schema.DRAFT_MAX.require(self.draft_max)
        shown = sum(len(one.pictures) for one in self.messages if one.role != "tool")
        if shown > MOST_PICTURES:
            raise UsageError(
                f"a request has at most {MOST_PICTURES} pictures, and this one has {shown}: leave "
                "earlier messages out, or begin a new chat"
            )
        if self.prompt_logprobs is not None and self.sees:
            raise UsageError("a prompt with pictures cannot be scored: their rows are no tokens")
        _require_json("tools", self.tools, list)
        _require_json("template arguments", self.template_arguments, dict)

    @property
    def characters(self) -> int:
        """Of the texts that have to be split into tokens before it is answered."""
        texts = (
            *(self.prompt, self.prediction, *(message.content for message in self.messages)),
            *(() if self.infill is None else self.infill.texts),
        )
        return sum(len(text) for text in texts if text)

    @property
    def written(self) -> int:
        """Characters of all that its prompt and the rules of its reply are made of: the chat
        template is given more than what is split into tokens in the end.
        """
        calls = (call for message in self.messages for call in message.calls)
        return (
            self.characters
            + sum(len(m.reasoning) + len(m.call_id) + len(m.name) for m in self.messages)
            + sum(len(call.id) + len(call.name) + len(call.arguments) for call in calls)
            + len(self.tools or "")
            + len(self.template_arguments or "")
        )

    def reads_as(self, other: ReplyRequest) -> bool:
        """Whether it has the prompt of another one."""
        return (
            self.messages == other.messages
            and self.prompt == other.prompt
            and self.prompt_tokens == other.prompt_tokens
            and self.infill == other.infill
            and self.adapters == other.adapters
        )

    @property
    def caller(self) -> str:
        """Whose turn it is: an owner may have several caches, named behind a slash."""
        return self.owner.partition("/")[0]

    @property
    def sees(self) -> bool:
        """Whether it has pictures."""
        return any(message.pictures for message in self.messages)

    @property
    def size(self) -> int:
        """Characters of all that it holds, roughly: each of several choices has a copy."""
        grammar = self.grammar
        pictures = (picture for message in self.messages for picture in message.pictures)
        return (
            self.written
            + len(self.owner)
            + sum(map(len, self.stop))
            + sum(len(picture.data) + len(picture.address) for picture in pictures)
            + (len(grammar.text) + sum(map(len, grammar.choices)) if grammar is not None else 0)
            + _NUMBER * (len(self.prompt_tokens or ()) + len(self.sampling.logit_bias))
        )

    @property
    def drafts(self) -> bool:
        """Whether anything may be drafted."""
        return self.draft and self.drafter != OFF and self.draft_max != 0


def _require_texts(name: str, value: object) -> None:
    if not isinstance(value, str | None):
        raise UsageError(f"the {name} must be a text, not {type(value).__name__}")


def _require_all(name: str, values: object, kind: type) -> None:
    several = values if isinstance(values, Sequence) and not isinstance(values, str) else None
    if several is None or not all(isinstance(value, kind) for value in several):
        raise UsageError(f"{name} must be a tuple of {kind.__name__}, nothing else")


def _require_stops(texts: Sequence[str]) -> None:
    if "" in texts:
        raise UsageError("a stop text is empty; it would end every reply")
    if len(texts) > MOST_STOPS:
        raise UsageError(f"a request has {len(texts)} stop texts, and {MOST_STOPS} is the most")
    size = sum(map(len, texts))
    if size > MOST_STOP:
        raise UsageError(
            f"the stop texts have {size} characters together, and {MOST_STOP} is the most: they "
            "are looked for at every token"
        )


def _require_alternatives(name: str, n: int | None) -> None:
    if n is not None and not 0 <= n <= MOST_ALTERNATIVES:
        raise UsageError(f"{name} must be between 0 and {MOST_ALTERNATIVES}, not {n}")


def _require_json(name: str, text: str | None, kind: type) -> None:
    """Refuse what is not JSON of that kind.

    Raises:
        UsageError: it is not.
    """
    if text is None:
        return
    try:
        data = json_text.read(text)
    except ValueError:
        raise UsageError(f"the {name} are not JSON") from None
    if not isinstance(data, kind):
        wanted = "an object" if kind is dict else "a list"
        raise UsageError(f"the {name} are not {wanted} in JSON")


class TakesEvents(Protocol):
    """Takes the events of one reply, in the thread that computes, so it must be quick."""

    def put(self, events: Sequence[ReplyEvent]) -> None:
        """Take events; after `Finished` nothing follows."""

    def fail(self, error: BaseException) -> None:
        """Take the error that ends the reply."""


@dataclass(frozen=True, slots=True)
class Tokenized:
    """A text as the target's vocabulary splits it."""

    text: str
    tokens: tuple[int, ...]
    """-1 for each row of a picture or a sound, which has no text."""
    pieces: tuple[str, ...]
    """The text of each token; control tokens by their name. Bytes that are not UTF-8 by themselves,
    parts of a character, are lone surrogates (PEP 383)."""


def seed_of_variant(seed: int, variant: int) -> int:
    """The seed of one of several replies: those that follow, from 0 on behind the largest one. A
    negative one counts like the largest ones, since -1 asks for a new one.
    """
    return (seed + variant) % (1 << 64) if variant else seed
