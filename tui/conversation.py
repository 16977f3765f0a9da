"""The conversation as data: what was said, where its tokens came from, how each reply ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from localspec.events import Message, Reply, Stats, Token
from tui.origins import Runs

End = Literal["stop", "length", "interrupt", "failed"]

_ENDINGS = {
    "length": "stopped at the limit",
    "interrupt": "stopped by you",
    "failed": "cut short",
}


@dataclass(slots=True)
class Turn:
    """One message; a reply grows while it is streamed."""

    role: Literal["user", "assistant"]
    text: str = ""
    """As it goes to the model."""
    runs: Runs = field(default_factory=Runs)
    end: End | None = None
    stats: Stats | None = None

    def add(self, token: Token) -> None:
        """A token of the reply."""
        self.text += token.text
        self.runs.add(token)

    def finish(self, reply: Reply) -> None:
        """The reply is whole; its text may end with some that no token has shown yet."""
        self.runs.extend(reply.text[len(self.text) :])
        self.text = reply.text
        self.stats = reply.stats
        self.end = reply.finish_reason

    @property
    def caption(self) -> str:
        """How the reply went, in a few words; empty while it runs."""
        if self.end is None:
            return ""
        parts = []
        if self.stats is not None and self.stats.emitted:
            tokens = "1 token" if self.stats.emitted == 1 else f"{self.stats.emitted} tokens"
            parts = [tokens, f"{self.stats.tokens_per_second:.0f} tok/s"]
            if self.stats.verified:
                parts.append(f"{self.stats.tokens_per_round:.1f} tok/round")
        if self.end in _ENDINGS:
            parts.append(_ENDINGS[self.end])
        return " · ".join(parts)


class Conversation:
    """The turns so far and the system prompt."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.turns: list[Turn] = []

    def say(self, text: str) -> Turn:
        """The person's next message."""
        turn = Turn("user", text)
        self.turns.append(turn)
        return turn

    def answer(self) -> Turn:
        """The reply that now begins."""
        turn = Turn("assistant")
        self.turns.append(turn)
        return turn

    def clear(self) -> None:
        """Start anew; the system prompt stays."""
        self.turns.clear()

    @property
    def last_reply(self) -> Turn | None:
        """The newest reply that holds text."""
        replies = (turn for turn in reversed(self.turns) if turn.role == "assistant" and turn.text)
        return next(replies, None)

    def messages(self) -> tuple[Message, ...]:
        """What the model is asked.

        Templates want the roles to alternate, so a question that got no answer joins the next.
        """
        messages = [Message("system", self.system)] if self.system else []
        for turn in self.turns:
            if not turn.text:
                continue
            if messages and messages[-1].role == turn.role:
                joined = f"{messages.pop().content}\n\n{turn.text}"
                messages.append(Message(turn.role, joined))
            else:
                messages.append(Message(turn.role, turn.text))
        return tuple(messages)
