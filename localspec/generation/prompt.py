"""Builds prompts: the chat template's text of a conversation, and its tokens."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from localspec.core.errors import ContextError, MediaError, TemplateEndedError, UsageError
from localspec.core.events import Message, Reply
from localspec.core.interrupt import Cancelled, never
from localspec.core.media_rows import is_row
from localspec.core.reply_request import ReplyRequest
from localspec.drafters.model.interface import common_prefix
from localspec.generation.chat_template import PLAIN_STOP, PLAIN_TEMPLATE, Template
from localspec.generation.fitting import Prompt, fit, remedy, too_many
from localspec.generation.pictures import Pictures, Sight, Tell, shown
from localspec.generation.quoting import Quoting, begins_spaced, plain
from localspec.generation.runnable import RunnableModel
from localspec.generation.template_messages import SYSTEM, kept
from localspec.generation.transcripts import Transcript, Transcripts
from localspec.grammar.tool_families import HERMES, Family
from localspec.prefix_cache.states import Conversation

_RESERVE_FRACTION = 4
"""A quarter of the context is kept free for the reply before old turns are dropped."""
_REPLY = "A reply."
"""Stands for any."""


@dataclass(frozen=True, slots=True)
class _Rendering:
    """Renders messages whose pictures are marked."""

    template: Template
    pictures: Pictures

    def render(self, messages: Sequence[Message], cancelled: Cancelled = never) -> str:
        """See `Template.render`; the text has the marks of their pictures and no others."""
        return self.pictures.settled(self.template.render(messages, cancelled))


class PromptBuilder:
    """Builds the prompts of one model, and reuses the tokens of earlier conversations."""

    def __init__(self, model: RunnableModel, capacity: int, sight: Sight | None = None) -> None:
        """``capacity`` is the context size in tokens; ``sight`` how the model sees, if it does."""
        self._model = model
        self._pictures = Pictures(sight)
        self._capacity = capacity
        bos, eos = (model.marker(model.special_ids[name]) for name in ("bos", "eos"))
        self._template = Template(model.template or PLAIN_TEMPLATE, bos=bos, eos=eos)
        self.stop = () if model.template else PLAIN_STOP
        """Texts that end a reply, in addition to those of the request."""
        self._bos = bos
        self._transcripts = Transcripts(self._new_transcript)

    def _new_transcript(self) -> Transcript:
        model, bos, quoting, pictures = self._model, self._bos, self._quoting, self._pictures
        rest = quoting.continued if begins_spaced(self._model) else quoting.tokens
        return Transcript(
            lambda text: pictures.tokens(
                text,
                bos=model.adds_bos and not (bos and text.startswith(bos)),
                split=quoting.tokens,
            ),
            lambda text: pictures.tokens(text, bos=False, split=rest),
            self._ends_turn,
        )

    def _ends_turn(self, text: str, at: int) -> bool:
        """Whether a turn of a rendered text may end at a place.

        Raises:
            TemplateEndedError: that cannot be told now.
        """
        if at == len(text):
            return True
        space = self._space_behind
        if space is None:
            return True
        return text.startswith(space, at) and self._quoting.control_at(text, at + len(space))

    @functools.cached_property
    def _space_behind(self) -> str | None:
        """What the template has between a reply and the control token that ends it; None where it
        ends replies in another way.

        Raises:
            TemplateEndedError: that cannot be told now.
        """
        said = (Message("user", "."), Message("assistant", _REPLY), Message("user", "."))
        try:
            _, found, rest = self._template.render(said).partition(_REPLY)
        except TemplateEndedError:
            raise
        except UsageError:
            return None
        space = rest[: len(rest) - len(rest.lstrip())]
        return space if found and self._quoting.control_at(rest, len(space)) else None

    def render(self, messages: Sequence[Message]) -> str:
        """The whole conversation as text, see `Template.render`."""
        return shown(plain(self._template.render(messages)))

    @functools.cached_property
    def _quoting(self) -> Quoting:
        return Quoting(self._model.control_texts, self._model.tokenize)

    @functools.cached_property
    def native_tools(self) -> Family | None:
        """How the model's own template has tools called; None where it does not tell of them, or
        in a way that is not known.

        Raises:
            TemplateEndedError: that cannot be told now.
        """
        return self._template.native_tools()

    def family(self, request: ReplyRequest) -> Family | None:
        """How the reply to a request calls tools; None without tools."""
        return (self.native_tools or HERMES) if _tools(request) else None

    def _template_of(self, request: ReplyRequest) -> _Rendering:
        """The template with what a request sets in it.

        Raises:
            UsageError: it cannot be set.
        """
        found = self._template.switched(request.thinking)
        if request.template_arguments is not None:
            found = found.with_variables(json.loads(request.template_arguments))
        tools = self._quoting.value(_tools(request))
        if tools or any(message.calls or message.role == "tool" for message in request.messages):
            found = found.with_tools(tools, in_text=self.native_tools is None)
        return _Rendering(found, self._pictures)

    def _messages(
        self,
        request: ReplyRequest,
        cancelled: Cancelled = never,
        tell: Tell = lambda _: None,
    ) -> tuple[tuple[Message, ...], tuple[object, ...]]:
        """The messages as the template gets them, and what their pictures are read from."""
        quoted = self._quoting.messages(request.messages)
        return self._pictures.marked(quoted, cancelled, tell)

    def chat(
        self,
        request: ReplyRequest,
        cancelled: Cancelled = never,
        tell: Tell = lambda _: None,
    ) -> Prompt:
        """The prompt of a conversation: as much of it as leaves room for the reply. ``cancelled``
        is asked while a template runs that may take long; ``tell`` is told what takes long.

        Raises:
            UsageError, ContextError: see `fit`.
            MediaError: a picture cannot be read, or the model cannot see.
            Interrupted: ``cancelled`` returned true.
        """
        most = self._capacity if request.max_tokens is None else request.max_tokens
        reserve = max(1, min(most, self._capacity // _RESERVE_FRACTION))
        encode = self._transcripts.of(request.owner).encode
        template = self._template_of(request)
        messages, held = self._messages(request, cancelled, tell)
        drop = request.drop_oldest
        size, longest = self._capacity, self._model.n_ctx_train
        found = fit(
            messages, template, encode, size, reserve, cancelled, drop=drop, longest=longest
        )
        if not held:
            return found
        if is_row(found.tokens[-1]):
            raise MediaError("nothing follows the last picture; write a question after it")
        return replace(found, held=held)

    def whole(self, request: ReplyRequest, cancelled: Cancelled = never) -> tuple[str, list[int]]:
        """Text and tokens of a conversation, whether it fits into the context or not.

        Raises:
            UsageError: the template refuses it.
            Interrupted: ``cancelled`` returned true.
        """
        messages, held = self._messages(request, cancelled)
        text = self._template_of(request).render(messages, cancelled)
        tokens = self._transcripts.of(request.owner).encode(text)
        del held  # what its marks stand for was needed until now
        return shown(plain(text)), tokens

    def stable(self, request: ReplyRequest, prompt: Prompt) -> int | None:
        """Tokens of the prompt that the next turn's prompt will begin with; None if the template
        does not say. Fewer than all where the template opens a reply, or a thought, in another way
        than it quotes one.
        """
        messages = kept(self._messages(request)[0], prompt.dropped)
        if all(m.role in SYSTEM for m in messages) or messages[-1].role == "assistant":
            return None
        later = [*messages, Message("assistant", "."), Message("user", ".")]
        try:
            text = self._template_of(request).render(later)
        except UsageError:
            return None
        shared = common_prefix(prompt.tokens, self._transcripts.of(request.owner).encode(text))
        if shared == len(prompt.tokens):
            return shared
        return max(0, shared - 1)  # the last one may be split differently before another reply

    def bare(self, text: str) -> list[int]:
        """The tokens of a text to be continued without a chat template.

        Raises:
            UsageError: it is empty.
            ContextError: it does not fit.
        """
        least = too_many(
            text, functools.partial(self._model.tokenize, special=True), self._capacity
        )
        if least:
            raise self._too_long(least, f"at least {least}")
        tokens = self._model.tokenize(text, special=True, bos=self._model.adds_bos)
        if not tokens:
            raise UsageError("the prompt is empty; give at least one character")
        return self._fitting(tokens)

    def given(self, tokens: Sequence[int]) -> list[int]:
        """A prompt that consists of these tokens.

        Raises:
            UsageError: there are none, or the model does not have one of them.
            ContextError: they do not fit.
        """
        if not tokens:
            raise UsageError("the prompt is empty; give at least one token")
        most = self._model.n_vocab - 1
        unknown = next((token for token in tokens if not 0 <= token <= most), None)
        if unknown is not None:
            raise UsageError(
                f"token {unknown} of the prompt is outside this model's vocabulary, 0 to {most}"
            )
        return self._fitting([*tokens])

    def _fitting(self, tokens: list[int]) -> list[int]:
        if len(tokens) >= self._capacity:
            raise self._too_long(len(tokens))
        return tokens

    def _too_long(self, tokens: int, count: str = "") -> ContextError:
        return ContextError(
            f"the prompt has {count or tokens} tokens, which with a reply exceeds the available "
            f"context size of {self._capacity}; " + remedy(tokens, self._model.n_ctx_train)
        )

    def remember(self, prompt: Prompt, reply: Reply, owner: str = "") -> Conversation:
        """Record the tokens of the reply, for the next turn that quotes its text; returns the
        conversation, the reply included.
        """
        tokens = list(reply.tokens)
        if tokens and tokens[-1] in self._model.end_ids:
            tokens.pop()
        said = Conversation(prompt.text + reply.text, (*prompt.tokens, *tokens))
        self.recall([said], owner)
        return said

    def recall(self, said: Sequence[Conversation], owner: str = "") -> None:
        """Have later prompts of that owner use the tokens of these conversations."""
        for one in said:
            self._transcripts.remember(owner, one.text, one.tokens)


def _tools(request: ReplyRequest) -> list[dict[str, Any]]:
    """The tools of a request, each with its type.

    Raises:
        UsageError: one is no object.
    """
    found = json.loads(request.tools) if request.tools is not None else []
    if not all(isinstance(tool, dict) for tool in found):
        raise UsageError("the tools are not objects")
    return [t if "function" in t else {"type": "function", "function": t} for t in found]
