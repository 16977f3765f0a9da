"""Selects the messages of a conversation that fit into the context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.core.events import Message
from localspec.errors import ContextError, UsageError
from localspec.generation.chat_template import Cancelled, Template, never
from localspec.generation.template_messages import SYSTEM, kept
from localspec.generation.transcripts import Tokenize


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt ready to be read."""

    text: str
    tokens: list[int]
    dropped: int = 0
    """Messages left out because the context was full."""


_CUT_EVERY = 4
"""Turns between two places where a chat that is too long may be cut."""


def fit(
    messages: Sequence[Message],
    template: Template,
    encode: Tokenize,
    capacity: int,
    reserve: int,
    cancelled: Cancelled = never,
    *,
    drop: bool = True,
) -> Prompt:
    """The prompt of as much of the conversation as leaves ``reserve`` tokens for the reply.

    The oldest turns go first, at message borders; system messages stay, and the last one, with its
    question where it continues a reply or is the result of a call. Without ``drop`` all stay.

    Raises:
        UsageError: nothing to answer.
        ContextError: what must stay does not fit.
    """
    if not messages:
        raise UsageError("there is no message to answer")

    def without(dropped: int) -> Prompt:
        text = template.render(kept(messages, dropped), cancelled)
        return Prompt(text, encode(text), dropped)

    prompt = without(0)
    if not prompt.tokens:
        raise UsageError("the model's chat template gives an empty prompt for this chat")
    if drop and len(prompt.tokens) + reserve > capacity:
        prompt = _shortened(messages, prompt, without, capacity - reserve)
    if len(prompt.tokens) >= capacity:
        raise _too_long(messages, prompt, encode, capacity, drop=drop)
    return prompt


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
        if len(shorter.tokens) <= most:
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


def _too_long(
    messages: Sequence[Message], prompt: Prompt, encode: Tokenize, capacity: int, *, drop: bool
) -> ContextError:
    tokens = len(prompt.tokens)
    of_system = sum(len(encode(m.content)) for m in messages if m.role in SYSTEM)
    size = f"{tokens} tokens, which with a reply exceeds the available context size of {capacity}"
    if 2 * of_system > tokens:
        what = f"the system prompt does not fit: with the message it has {size}"
        return ContextError(f"{what}; shorten it, or raise --ctx")
    if not drop and any(m.role == "assistant" for m in messages[:-1]):
        # Agents know the first words from Anthropic's API, and then summarize earlier turns.
        return ContextError(
            f"the prompt is too long: {tokens} tokens > {capacity} maximum, and exceeds the "
            "available context size; shorten the messages, or raise --ctx"
        )
    if not drop:
        return ContextError(f"the messages do not fit: {size}; shorten them, or raise --ctx")
    if messages[-1].role == "assistant":
        return ContextError(
            f"the reply cannot continue: with its question it has {size}; raise --ctx"
        )
    return ContextError(
        f"the message is too long: with the chat template it has {size}; shorten it, or raise --ctx"
    )


__all__ = ["Prompt", "fit"]
