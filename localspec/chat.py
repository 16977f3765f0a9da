"""Conversations as prompts: the chat template, what fits, and tokens kept from turn to turn."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jinja2
import jinja2.ext
import jinja2.sandbox

from localspec.errors import ContextError, UnsupportedModelError, UsageError
from localspec.events import Message

PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ m.role | capitalize }}: {{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""For models that bring no template of their own."""
PLAIN_STOP = ("\nUser:",)


class Template:
    """A model's chat template. It comes with a downloaded file, so it runs in a sandbox."""

    def __init__(self, source: str, *, bos: str, eos: str) -> None:
        """Compile.

        Raises:
            UnsupportedModelError: it is not valid Jinja.
        """
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)  # noqa: DTZ005 - local time is what a chat means
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise UnsupportedModelError(f"the model's chat template is broken: {error}") from None
        self._bos, self._eos = bos, eos

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt that asks for the next assistant turn.

        Raises:
            UsageError: the template refuses these messages.
        """
        try:
            return self._template.render(
                messages=[{"role": m.role, "content": m.content} for m in messages],
                add_generation_prompt=True,
                bos_token=self._bos,
                eos_token=self._eos,
            )
        except Exception as error:  # noqa: BLE001 - it is a program, and not ours
            raise UsageError(f"the model's chat template refuses this chat: {error}") from None


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


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
    would throw away the KV cache from there on, and would not be what the model said. A turn that
    is asked again gets the same tokens again.
    """

    def __init__(self, tokenize_start: Tokenize, tokenize_rest: Tokenize) -> None:
        """Tokenizers for the start of a text (adding bos where wanted) and for what follows."""
        self._start, self._rest = tokenize_start, tokenize_rest
        self._seen: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt."""
        known = max((t for t in self._seen if text.startswith(t)), key=len, default="")
        if not known:
            return self._start(text)
        return self._seen[known] + self._rest(text[len(known) :])

    def remember(self, text: str, tokens: list[int]) -> None:
        """That ``text`` stands for exactly these tokens."""
        self._seen.pop(text, None)
        self._seen[text] = list(tokens)
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]


def fit(
    messages: Sequence[Message],
    template: Template,
    encode: Tokenize,
    capacity: int,
    reserve: int,
) -> Prompt:
    """The prompt of as much of the conversation as leaves ``reserve`` tokens for the reply.

    The oldest turns go first, at message borders; system messages and the last one stay.

    Raises:
        UsageError: nothing to answer.
        ContextError: the last message alone does not fit.
    """
    if not messages:
        raise UsageError("there is no message to answer")
    system = [m for m in messages if m.role == "system"]
    turns = [m for m in messages if m.role != "system"]
    dropped = 0
    while True:
        text = template.render([*system, *turns])
        tokens = encode(text)
        if not tokens:
            raise UsageError("the model's chat template makes nothing of this chat")
        if len(tokens) + reserve <= capacity or (len(turns) <= 1 and len(tokens) < capacity):
            return Prompt(text, tokens, dropped)
        if len(turns) <= 1:
            raise ContextError(
                f"the message is too long: with its frame it has {len(tokens)} tokens, and the "
                f"context holds {capacity}; shorten it, or raise --ctx"
            )
        gone = 1
        while gone < len(turns) - 1 and turns[gone].role != "user":
            gone += 1
        dropped += gone
        turns = turns[gone:]
