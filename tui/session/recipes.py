"""How replies were made, so that they can be made again."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.chats.calls import calls_as_text
from localspec.core.events import Message, Reply
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling


@dataclass(frozen=True, slots=True)
class How:
    """How a reply was made, as far as that is saved with it, so that a later session can make it
    again. The names of the fields are keys of the file.
    """

    sampling: Sampling
    max_tokens: int | None
    system: str | None
    start: int = 0
    """Tokens that the turn had before, where the reply continues a stopped one."""
    said: int = 0
    """Characters of the turn's text before the reply."""
    grammar: GrammarSpec | None = None
    thinking: bool | None = None


@dataclass(frozen=True, slots=True)
class ReplyRecipe:
    """A reply with all that is needed to make it again."""

    messages: tuple[Message, ...]
    reply: Reply
    how: How
    tools: str | None = None
    """The tools that the model was told of."""

    def request(self, *, draft: bool) -> ReplyRequest:
        """The request that makes the reply again with the same seed."""
        return ReplyRequest(
            messages=self.messages,
            sampling=self.how.sampling,
            seed=self.reply.seed,
            max_tokens=self.how.max_tokens,
            draft=draft,
            grammar=self.how.grammar,
            thinking=self.how.thinking,
            tools=self.tools,
            markers=self.tools is not None,
        )


@dataclass(frozen=True, slots=True)
class Made:
    """How a reply of this session was made, but for the messages before it: kept with each reply,
    they would grow with the square of the replies. `Conversation.recipe_of` has them.
    """

    reply: Reply
    how: How
    tools: str | None
    """The tools that the model was told of."""
    asked: int
    """Hash of the messages that it was told."""

    def recipe(self, before: tuple[Message, ...]) -> ReplyRecipe | None:
        """The recipe, if the model was told these messages; None where one has changed since."""
        for messages in (before, calls_as_text(before)):
            if hash(messages) == self.asked:
                return ReplyRecipe(messages, self.reply, self.how, self.tools)
        return None
