"""Selects the messages of a conversation that fit into the context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.core.errors import RAISE_CTX, ContextError, UsageError
from localspec.core.events import Message
from localspec.core.interrupt import Cancelled, never
from localspec.generation.template_messages import SYSTEM, kept
from localspec.generation.transcripts import Tokenize


class Renders(Protocol):
    """A chat template."""

    def render(self, messages: Sequence[Message], cancelled: Cancelled = ..., /) -> str:
        """The text of a conversation, see `localspec.generation.chat_template`."""
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt ready to be read."""

    text: str
    tokens: list[int]
    dropped: int = 0
    """Messages left out because the context was full."""
    least: int = 0
    """Tokens that it has at least, where it is far too long to be split at all."""
    held: tuple[object, ...] = ()
    """What its pictures are read from."""

    @property
    def length(self) -> int:
        """Its tokens, or at least so many."""
        return max(len(self.tokens), self.least)


_PART = 1 << 16
"""Characters of a long text that are counted at once."""
_BORDER = 16
"""Tokens that such a part may have more than its share."""
_CUT_EVERY = 4
"""Turns between two places where a chat that is too long may be cut."""


def fit(
    messages: Sequence[Message],
    template: Renders,
    encode: Tokenize,
    capacity: int,
    reserve: int,
    cancelled: Cancelled = never,
    *,
    drop: bool = True,
    longest: int = 0,
) -> Prompt:
    """The prompt of as much of the conversation as leaves ``reserve`` tokens for the reply.

    The oldest turns go first, at message borders; system messages stay, and the last one, with its
    question where it continues a reply or is the result of a call. Without ``drop`` all stay.
    ``longest`` is the longest context that the model has learnt, 0 if unknown.

    Raises:
        UsageError: nothing to answer.
        ContextError: what must stay does not fit.
    """
    if not messages:
        raise UsageError("there is no message to answer")

    def without(dropped: int) -> Prompt:
        text = template.render(kept(messages, dropped), cancelled)
        least = too_many(text, encode, capacity, longest)
        return Prompt(text, [] if least else encode(text), dropped, least)

    prompt = without(0)
    if not prompt.length:
        raise UsageError("the model's chat template gives an empty prompt for this chat")
    if drop and prompt.length + reserve > capacity:
        prompt = _shortened(messages, prompt, without, capacity - reserve)
    if prompt.length >= capacity:
        raise _too_long(messages, prompt, encode, capacity, longest, drop=drop)
    return prompt


def too_many(text: str, encode: Tokenize, capacity: int, longest: int = 0) -> int:
    """The tokens that a long text has at least, if they are more than a context holds; else 0. It
    is not split whole for that: a text of millions of characters takes seconds and gigabytes. They
    are counted up to the ``longest`` context that the model has learnt.
    """
    if len(text) <= 2 * _PART:
        return 0
    found = 0
    for at in range(0, len(text), _PART):
        found += max(0, len(encode(text[at : at + _PART])) - _BORDER)
        if found >= max(capacity, longest):
            break
    return found if found >= capacity else 0


def _shortened(
    messages: Sequence[Message], prompt: Prompt, without: Callable[[int], Prompt], most: int
) -> Prompt:
    """The prompt with as many turns as make ``most`` tokens, or as few as may be."""
    cuts = _cuts([m for m in messages if m.role not in SYSTEM])
    if cuts:
        prompt = without(cuts.pop())
    # A long chat has many turns too many: the first cut that leaves enough is found by halving.
    low, high = 0, len(cuts)
    while low < high:
        middle = (low + high) // 2
        shorter = without(cuts[middle])
        if shorter.length <= most:
            prompt, high = shorter, middle
        else:
            low = middle + 1
    # Cut a few turns further than needed, always at the same places: the next turns then begin
    # with the same text, which the KV cache holds.
    steady = -(-(low + 1) // _CUT_EVERY) * _CUT_EVERY - 1
    return without(cuts[steady]) if low < steady < len(cuts) else prompt


def _cuts(turns: Sequence[Message]) -> list[int]:
    """Turns before which a conversation may be cut."""
    last = len(turns) - 1
    if last >= 0 and turns[last].role == "assistant":
        last -= 1  # what is unfinished keeps its question
    if last >= 0 and turns[last].role == "tool":
        last = max((i for i in range(last) if turns[i].role == "user"), default=0)
    return [i for i in range(1, last + 1) if turns[i].role == "user" or i == last]


def remedy(tokens: int, longest: int, what: str = "it") -> str:
    """What to do about a prompt of so many tokens that does not fit: a larger context only where
    the model has learnt one of that size.
    """
    if longest and tokens >= longest:
        return f"shorten {what}: this model reads at most {longest}"
    return f"shorten {what}, or {RAISE_CTX}"


def _too_long(
    messages: Sequence[Message],
    prompt: Prompt,
    encode: Tokenize,
    capacity: int,
    longest: int,
    *,
    drop: bool,
) -> ContextError:
    tokens = prompt.length
    texts = [m.content for m in messages if m.role in SYSTEM]
    of_system = sum(
        too_many(text, encode, capacity, longest) or len(encode(text)) for text in texts
    )
    count = f"at least {tokens}" if prompt.least else str(tokens)
    size = f"{count} tokens, which with a reply exceeds the available context size of {capacity}"
    if 2 * of_system > tokens:
        what = f"the system prompt does not fit: with the message it has {size}"
        return ContextError(f"{what}; {remedy(tokens, longest)}")
    if not drop and any(m.role == "assistant" for m in messages[:-1]):
        # Agents know the first words from Anthropic's API, and then summarize earlier turns.
        return ContextError(
            f"the prompt is too long: {tokens} tokens > {capacity} maximum, and exceeds the "
            f"available context size; {remedy(tokens, longest, 'the messages')}"
        )
    if not drop:
        return ContextError(f"the messages do not fit: {size}; {remedy(tokens, longest, 'them')}")
    if messages[-1].role == "assistant":
        end = tokens >= longest > 0
        more = f"this model reads at most {longest}" if end else RAISE_CTX
        return ContextError(f"the reply cannot continue: with its question it has {size}; {more}")
    return ContextError(
        f"the message is too long: with the chat template it has {size}; {remedy(tokens, longest)}"
    )
