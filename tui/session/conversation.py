"""The conversation as data: what was said, where its tokens came from, how each reply ended."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from localspec.chats.tree import Tree
from localspec.chats.values import End, new_message_id
from localspec.core.events import Message, Reply, Stats, Token
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling
from tui.render.block_splitter import plain
from tui.session.token_runs import Runs

_ENDINGS = {
    "length": "stopped at the limit",
    "interrupt": "stopped by you",
    "failed": "cut short",
}


_THEN = ", then "
"""Between the models of a reply that one began and another continued."""


@dataclass(frozen=True, slots=True)
class Made:
    """How a reply came about: enough to make it again."""

    messages: tuple[Message, ...]
    sampling: Sampling
    max_tokens: int | None
    reply: Reply
    start: int = 0
    """Tokens that the turn had before: it was stopped, and ``reply`` is how it went on."""
    said: int = 0
    """Characters of its text before."""

    def request(self, *, draft: bool) -> ReplyRequest:
        """The request that makes it again, with the seed that it was made with."""
        return ReplyRequest(
            messages=self.messages,
            sampling=self.sampling,
            seed=self.reply.seed,
            max_tokens=self.max_tokens,
            draft=draft,
        )


@dataclass(frozen=True, slots=True)
class How:
    """With what a reply was asked for: kept on disk, so that a later session can make it again."""

    sampling: Sampling
    max_tokens: int | None
    system: str | None
    start: int = 0
    said: int = 0
    """Both as in `Made`."""


@dataclass(slots=True)
class Turn:
    """One message; a reply grows while it is streamed."""

    role: Literal["user", "assistant"]
    text: str = ""
    """As it goes to the model."""
    runs: Runs = field(default_factory=Runs)
    end: End | None = None
    stats: Stats | None = None
    seed: int | None = None
    """What the reply was drawn with."""
    id: int = field(default_factory=new_message_id)
    parent: int | None = None
    """The turn it follows; turns with the same one are branches."""
    created: float = field(default_factory=time.time)
    tokens: list[Token] = field(default_factory=list)
    """Those of the reply, where they are known."""
    made: Made | None = None
    how: How | None = None
    """Of a reply of an earlier session."""
    model: str | None = None
    """The model that wrote the reply, as it was asked for; None where that is not known."""
    by_another: bool = False
    """Whether the reply before it on the branch was written by another model."""

    def add(self, token: Token) -> None:
        """A token of the reply."""
        self.text += token.text
        self.runs.add(token)
        self.tokens.append(token)

    def finish(self, reply: Reply) -> None:
        """The reply is whole; its text may end with some that no token has shown yet."""
        self.runs.extend(reply.text[len(self.text) :])
        self.text = reply.text
        self.stats = reply.stats
        self.end = reply.finish_reason
        self.seed = reply.seed

    @property
    def caption(self) -> str:
        """How the reply went, in a few words; empty while it runs."""
        if self.end is None:
            return ""
        parts = []
        if self.stats is not None and self.stats.emitted:
            # One that went on has more than the figures of its last part tell.
            emitted = max(self.stats.emitted, len(self.tokens))
            tokens = "1 token" if emitted == 1 else f"{emitted} tokens"
            parts = [tokens, f"{self.stats.tokens_per_second:.0f} tok/s"]
            if self.stats.verified:
                parts.append(f"{self.stats.tokens_per_round:.1f} tok/round")
        if self.end in _ENDINGS:
            unsaid = self.end == "failed" and not self.text
            parts.append("not answered" if unsaid else _ENDINGS[self.end])
        if self.by_another and self.model is not None:
            names = [Path(model).name for model in self.model.split(_THEN)]
            parts.append(f"by {plain(_THEN.join(names))}")
        return " · ".join(parts)


class Conversation:
    """The turns so far, of all branches, and the system prompt."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.turns: list[Turn] = []
        """The branch that is looked at, and that goes on."""
        self._all: dict[int, Turn] = {}
        self._tree = Tree()
        self._place: tuple[int, int] | None = None

    def say(self, text: str) -> Turn:
        """The person's next message."""
        return self._next("user", text)

    def answer(self) -> Turn:
        """The reply that now begins."""
        return self._next("assistant", "")

    def written_by(self, reply: Turn, model: str | None) -> None:
        """Note which model writes a reply of this branch; one that goes on may have another."""
        known = reply.model
        if known is not None and model is not None:
            model = known if known.split(_THEN)[-1] == model else f"{known}{_THEN}{model}"
        reply.model = model or known
        self._compare_models()

    def _compare_models(self) -> None:
        before = None
        for turn in self.turns:
            if turn.model is not None:
                turn.by_another = before not in (None, turn.model)
                before = turn.model

    def _next(self, role: Literal["user", "assistant"], text: str) -> Turn:
        parent = self.turns[-1].id if self.turns else None
        turn = Turn(role, text, id=new_message_id(parent), parent=parent)
        self._put(turn)
        self.turns.append(turn)
        return turn

    def _put(self, turn: Turn) -> None:
        self._tree.add(turn.id, turn.parent)
        self._all[turn.id] = turn
        self._place = None

    def clear(self) -> None:
        """Start anew; the system prompt stays."""
        self.load((), None)

    def load(self, turns: Iterable[Turn], leaf: int | None) -> None:
        """Take the turns of a chat, parents first, and look at the branch that ends in ``leaf``."""
        self._all.clear()
        self._tree = Tree()
        for turn in turns:
            self._put(turn)
        self._look_at(leaf if leaf in self._all else self._tree.newest_leaf())

    # -- branches ------------------------------------------------------------------------------

    def rewind(self, turn: Turn) -> None:
        """Go back to before ``turn``: what is said next begins another branch beside it."""
        self._look_at(turn.parent)

    @property
    def place(self) -> tuple[int, int]:
        """Which branch is looked at, counted from 1, and how many there are."""
        if self._place is None:
            leaves = self._tree.leaves()
            last = self.turns[-1].id if self.turns else None
            # One that was just left to begin another beside it is in between two branches.
            at = leaves.index(last) if last in leaves else len(leaves) - 1
            self._place = at + 1, len(leaves)
        return self._place

    def branch(self, step: int) -> bool:
        """Look at another branch, ``step`` further; whether there is one."""
        (place, count), leaves = self.place, self._tree.leaves()
        if not 1 <= place + step <= count:
            return False
        self._look_at(leaves[place + step - 1])
        return True

    def _look_at(self, leaf: int | None) -> None:
        self._place = None
        self.turns[:] = [self._all[step] for step in self._tree.path(leaf)]
        for place, turn in enumerate(self.turns):
            if turn.how is not None and turn.made is None:
                turn.made = _made(turn, turn.how, self.turns[:place])
        self._compare_models()

    def forget_how(self) -> None:
        """Another model answers: how replies were made cannot be looked at any more."""
        for turn in self._all.values():
            turn.made = turn.how = None

    @property
    def last_reply(self) -> Turn | None:
        """The newest reply that holds text."""
        replies = (turn for turn in reversed(self.turns) if turn.role == "assistant" and turn.text)
        return next(replies, None)

    def messages(self) -> tuple[Message, ...]:
        """What the model is asked.

        Templates want the roles to alternate, so a question that was stopped before its answer
        joins the next. One whose answer failed is left out until it is asked once more.
        """
        return _messages(self.system, self.turns)


def _messages(system: str | None, turns: Iterable[Turn]) -> tuple[Message, ...]:
    messages = [Message("system", system)] if system else []
    said = list(turns)
    for turn, answer in zip_longest(said, said[1:]):
        if turn is None or not turn.text:
            continue
        if answer is not None and answer.end == "failed" and not answer.text:
            continue  # what could not be answered, too long a text say, would fail again and again
        if messages and messages[-1].role == turn.role:
            joined = f"{messages.pop().content}\n\n{turn.text}"
            messages.append(Message(turn.role, joined))
        else:
            messages.append(Message(turn.role, turn.text))
    return tuple(messages)


def _made(turn: Turn, how: How, before: Iterable[Turn]) -> Made | None:
    """What is known of a reply that was kept; None where that is not enough."""
    if turn.stats is None or turn.seed is None or turn.end is None or turn.end == "failed":
        return None
    ids = tuple(token.token for token in turn.tokens[how.start :])
    origins = tuple(token.origin for token in turn.tokens[how.start :])
    reply = Reply(turn.text[how.said :], ids, origins, turn.end, turn.stats, turn.seed)
    begun = [Turn("assistant", turn.text[: how.said])] if how.said else []
    messages = _messages(how.system, [*before, *begun])
    return Made(messages, how.sampling, how.max_tokens, reply, how.start, how.said)
