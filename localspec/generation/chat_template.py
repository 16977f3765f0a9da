"""Conversations as prompts: the chat template, what fits, and tokens kept from turn to turn."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.core.events import Message
from localspec.errors import ContextError, UnsupportedModelError, UsageError
from localspec.generation import template_process
from localspec.generation.template_process import TooMuchError
from localspec.generation.template_program import (
    LONGEST_SOURCE,
    THINKING,
    BrokenTemplateError,
    Program,
    RefusedError,
    is_bounded,
)

PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ m.role | capitalize }}: {{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""For models that bring no template of their own."""
PLAIN_STOP = ("\nUser:",)


Cancelled = Callable[[], bool]
"""Whether nobody wants the result any more."""


def _never() -> bool:
    return False


class Template:
    """A model's chat template. It comes with a downloaded file: one that could take more time or
    memory than its messages do runs in a process with limits: see
    `localspec.generation.template_process`.
    """

    def __init__(self, source: str, *, bos: str, eos: str) -> None:
        """Compile.

        Raises:
            UnsupportedModelError: it is not valid Jinja, or too long.
        """
        if len(source) > LONGEST_SOURCE:
            raise UnsupportedModelError(
                f"the model's chat template has {len(source)} characters, and {LONGEST_SOURCE} is "
                "the most; choose another file of this model"
            )
        self._source, self._bos, self._eos = source, bos, eos
        self._thinking: bool | None = None
        self._program: Program | None = None
        try:
            if is_bounded(source):
                self._program = Program(source)
                return
            broken = self._ask({"source": source}).get("broken")
        except (BrokenTemplateError, TooMuchError) as error:
            broken = str(error)
        if broken is not None:
            raise UnsupportedModelError(f"the model's chat template is broken: {broken}")

    def switched(self, thinking: bool | None) -> Template:
        """This template with thinking switched on or off; None leaves it to the template.

        Raises:
            UsageError: it has no such switch.
        """
        if thinking is None:
            return self
        if THINKING not in self._source:
            raise UsageError("this model's chat template has no switch for thinking")
        found = copy.copy(self)
        found._thinking = thinking  # noqa: SLF001 - of the same class
        return found

    def render(self, messages: Sequence[Message], cancelled: Cancelled = _never) -> str:
        """The prompt that asks for the next assistant turn, or for the rest of one.

        A last message of the assistant is taken as unfinished and is continued. ``cancelled`` is
        asked while a template runs that may take long.

        Raises:
            UsageError: the template refuses these messages, or takes too much time or memory.
            Interrupted: ``cancelled`` returned true.
        """
        unfinished = messages[-1].content if messages and messages[-1].role == "assistant" else ""
        whole = messages[:-1] if unfinished else messages
        try:
            prompt = self._rendered(
                [{"role": m.role, "content": m.content} for m in whole], cancelled
            )
        except (RefusedError, TooMuchError) as error:
            raise UsageError(f"the model's chat template refuses this chat: {error}") from None
        return prompt + unfinished

    def _rendered(self, messages: list[dict[str, str]], cancelled: Cancelled) -> str:
        if self._program is not None:
            return self._program.render(messages, self._bos, self._eos, self._thinking)
        answer = self._ask(
            {
                "source": self._source,
                "messages": messages,
                "bos": self._bos,
                "eos": self._eos,
                "thinking": self._thinking,
            },
            cancelled,
        )
        if "text" not in answer:
            raise RefusedError(answer.get("refused") or answer.get("broken"))
        return str(answer["text"])

    def _ask(self, request: dict[str, Any], cancelled: Cancelled = _never) -> dict[str, Any]:
        return template_process.shared().ask(request, cancelled)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt ready to be read."""

    text: str
    tokens: list[int]
    dropped: int = 0
    """Messages left out because the context was full."""


Tokenize = Callable[[str], list[int]]


_REMEMBERED = 64
"""Texts whose tokens are kept: the turns of a few chats and their branches."""


class Transcript:
    """Turns texts into tokens, reusing those of the longest beginning that was seen before.

    A reply is not tokenized again when the next turn quotes it: another split of the same text
    would throw away the KV cache from there on, and would not be what the model wrote. A turn that
    is asked again gets the same tokens again.
    """

    def __init__(self, tokenize_start: Tokenize, tokenize_rest: Tokenize) -> None:
        """Tokenizers for the start of a text (adding bos where wanted) and for what follows."""
        self._start, self._rest = tokenize_start, tokenize_rest
        self._seen: dict[str, list[int]] = {}
        self._lock = threading.Lock()

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt. Callable from any thread, as is `remember`."""
        with self._lock:
            known = max((t for t in self._seen if text.startswith(t)), key=len, default="")
            tokens = self._seen.get(known)
        return self._start(text) if tokens is None else tokens + self._rest(text[len(known) :])

    def remember(self, text: str, tokens: list[int]) -> None:
        """Record that ``text`` was made of exactly these tokens."""
        with self._lock:
            self._seen.pop(text, None)
            self._seen[text] = list(tokens)
            if len(self._seen) > _REMEMBERED:
                del self._seen[next(iter(self._seen))]


_CUT_EVERY = 4
"""Turns between two places where a chat that is too long may be cut."""


def fit(
    messages: Sequence[Message],
    template: Template,
    encode: Tokenize,
    capacity: int,
    reserve: int,
    cancelled: Cancelled = _never,
) -> Prompt:
    """The prompt of as much of the conversation as leaves ``reserve`` tokens for the reply.

    The oldest turns go first, at message borders; system messages and the last one stay.

    Raises:
        UsageError: nothing to answer.
        ContextError: the last message alone does not fit, or the system prompt.
    """
    if not messages:
        raise UsageError("there is no message to answer")
    system = [m for m in messages if m.role == "system"]
    turns = [m for m in messages if m.role != "system"]

    def without(dropped: int) -> Prompt:
        text = template.render([*system, *turns[dropped:]], cancelled)
        return Prompt(text, encode(text), dropped)

    prompt = without(0)
    if not prompt.tokens:
        raise UsageError("the model's chat template makes nothing of this chat")
    if len(prompt.tokens) + reserve <= capacity:
        return prompt
    last = len(turns) - 1 - (turns[-1].role == "assistant")  # what is unfinished keeps its question
    cuts = [i for i in range(1, last + 1) if turns[i].role == "user" or i == last]
    if cuts:
        prompt = without(cuts.pop())
    # A long chat has many turns too many: the first cut that leaves enough is found by halving.
    low, high = 0, len(cuts)
    while low < high:
        middle = (low + high) // 2
        shorter = without(cuts[middle])
        if len(shorter.tokens) + reserve <= capacity:
            prompt, high = shorter, middle
        else:
            low = middle + 1
    # Cut a few turns further than needed, always at the same places: the next turns then begin
    # with the same text, which the KV cache holds.
    steady = -(-(low + 1) // _CUT_EVERY) * _CUT_EVERY - 1
    if low < steady < len(cuts):
        prompt = without(cuts[steady])
    if len(prompt.tokens) >= capacity:
        of_system = sum(len(encode(message.content)) for message in system)
        goes_on = turns[-1].role == "assistant"
        raise _too_long(len(prompt.tokens), of_system, capacity, goes_on=goes_on)
    return prompt


def _too_long(tokens: int, of_system: int, capacity: int, *, goes_on: bool) -> ContextError:
    size = f"{tokens} tokens, and the context holds {capacity}"
    if 2 * of_system > tokens:
        what = f"the system prompt is too long: with the message it has {size}"
        return ContextError(f"{what}; shorten it, or raise --ctx")
    if goes_on:
        return ContextError(
            f"the reply cannot continue: with its question it has {size}; raise --ctx"
        )
    return ContextError(
        f"the message is too long: with its frame it has {size}; shorten it, or raise --ctx"
    )
