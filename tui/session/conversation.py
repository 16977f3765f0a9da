"""The conversation as data: messages, the origins of their tokens, how each reply ended."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from localspec.chats.calls import Said, SavedCall, request_messages
from localspec.chats.tree import Tree
from localspec.chats.values import ENDINGS, End, new_message_id
from localspec.core import units
from localspec.core.events import Message, Reply, Stats, Token
from tui.render.text import plain
from tui.session.recipes import How, Made, ReplyRecipe
from tui.session.token_runs import Runs

_THEN = ", then "
"""Separates the models of a reply that one began and another continued."""


@dataclass(slots=True)
class ChatTurn:
    """One message; a reply grows while it is streamed."""

    role: Literal["user", "assistant"]
    text: str = ""
    """The text that goes to the model."""
    runs: Runs = field(default_factory=Runs)
    end: End | None = None
    stats: Stats | None = None
    seed: int | None = None
    """Seed of the reply."""
    id: int = field(default_factory=new_message_id)
    parent: int | None = None
    """Id of the turn before; turns with the same parent are branches."""
    created: float = field(default_factory=time.time)
    tokens: list[Token] = field(default_factory=list)
    """Tokens of a reply, where they are known."""
    made: Made | None = None
    """How a reply of this session was made."""
    saved_how: How | None = None
    """How a reply of an earlier session was made."""
    model: str | None = None
    """Name of the model that wrote the reply, as the user gave it; None where not known."""
    draft: str | None = None
    """Name of the draft model that helped; None without one, or where not known."""
    calls: list[SavedCall] = field(default_factory=list)
    """Calls of tools that the reply makes."""
    calls_at: int | None = None
    """Where in the text they begin; None without any."""
    held: int = 0
    """Characters at the end of a growing text that may be the beginning of a call."""
    by_another: bool = False
    """Whether the reply before it on the branch was written by another model."""

    def add(self, token: Token) -> None:
        """Append a token of the reply."""
        self.text += token.text
        self.runs.add(token)
        self.tokens.append(token)

    def become(self, saved: ChatTurn) -> None:
        """Take the reply as another window has gone on with it."""
        self.text, self.runs, self.tokens = saved.text, saved.runs, saved.tokens
        self.end, self.stats, self.seed = saved.end, saved.stats, saved.seed
        self.made, self.saved_how = None, saved.saved_how
        self.model, self.draft = saved.model, saved.draft
        self.calls, self.calls_at = saved.calls, saved.calls_at

    @property
    def last_model(self) -> str | None:
        """The model that wrote the end of the reply, which `saved_how` is about."""
        return None if self.model is None else self.model.split(_THEN)[-1]

    @property
    def said(self) -> str:
        """The text without the calls of tools."""
        if self.calls_at is not None:
            return self.text[: self.calls_at].rstrip()
        return self.text[: len(self.text) - self.held]

    @property
    def calls_wait(self) -> bool:
        """Whether it has calls to be run."""
        return any(call.state == "waiting" for call in self.calls)

    @property
    def awaits_reply(self) -> bool:
        """Whether the model is to be told the results of its calls."""
        return any(call.whole for call in self.calls)

    def finish(self, reply: Reply) -> None:
        """Take the finished reply; its text may end with more than the tokens so far."""
        self.runs.extend(reply.text[len(self.text) :])
        self.text = reply.text
        self.stats = reply.stats
        self.end = reply.finish_reason
        self.seed = reply.seed

    @property
    def caption(self) -> str:
        """Speed, length and ending of the reply in one line; empty while it grows."""
        if self.end is None:
            return ""
        parts = []
        if self.stats is not None and self.stats.emitted:
            # The figures of a continued reply count its last part only.
            emitted = max(self.stats.emitted, len(self.tokens))
            tokens = "1 token" if emitted == 1 else f"{emitted} tokens"
            parts = [tokens]
            if emitted == self.stats.emitted and self.stats.decode_seconds > 0:
                # No speed: that of the last reply is in the bottom line, a few rows below.
                parts = [f"{tokens} in {units.seconds(self.stats.decode_seconds)}"]
            if self.stats.speedup is not None and self.stats.speedup.text:
                parts.append(self.stats.speedup.text)
        if self.end in ENDINGS:
            empty = self.end == "failed" and not self.text
            parts.append("not answered" if empty else ENDINGS[self.end])
        if self.by_another and self.model is not None:
            names = [Path(model).name for model in self.model.split(_THEN)]
            parts.append(f"by {plain(_THEN.join(names))}")
        return " · ".join(parts)


class Conversation:
    """The turns so far, of all branches, and the system prompt."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.turns: list[ChatTurn] = []
        """The branch that is shown and continued."""
        self._all: dict[int, ChatTurn] = {}
        self._tree = Tree()
        self._place: tuple[int, int] | None = None

    def say(self, text: str) -> ChatTurn:
        """Add a message of the user to the branch that is shown."""
        return self.follow(self.last, "user", text)

    def answer(self) -> ChatTurn:
        """Add an empty reply to the branch that is shown."""
        return self.follow(self.last, "assistant")

    def follow(
        self, before: ChatTurn | None, role: Literal["user", "assistant"], text: str = ""
    ) -> ChatTurn:
        """Add a turn after ``before``, None for the beginning; it is shown if the branch that is
        shown ends there.
        """
        parent = None if before is None else before.id
        turn = ChatTurn(role, text, id=new_message_id(parent), parent=parent)
        self._put(turn)
        if before is self.last:
            self.turns.append(turn)
        return turn

    def messages_to(self, turn: ChatTurn) -> tuple[Message, ...]:
        """The messages of a request whose last message is ``turn``, or whose reply it is while it
        is empty, whichever branch is shown.
        """
        return _messages(self.system, self.branch_to(turn))

    def end_of(self, turn: ChatTurn) -> ChatTurn:
        """``turn``, or the last of the replies that go on from the results of its calls."""
        while turn.calls:
            after = [t for t in self._all.values() if t.parent == turn.id and t.role != "user"]
            if not after:
                break
            turn = max(after, key=lambda reply: reply.id)
        return turn

    def branch_to(self, turn: ChatTurn) -> list[ChatTurn]:
        """The turns from the first one to ``turn``, whichever branch is shown."""
        return [self._all[step] for step in self._tree.path(turn.id)]

    def written_by(self, reply: ChatTurn, model: str | None, draft: str | None = None) -> None:
        """Note which model writes a reply, with which draft model; a continued reply may have two
        of each.
        """
        if reply.draft is not None and draft not in (None, reply.draft.split(_THEN)[-1]):
            draft = f"{reply.draft}{_THEN}{draft}"
        reply.draft = draft or reply.draft
        known = reply.model
        if known is not None and model is not None:
            model = known if reply.last_model == model else f"{known}{_THEN}{model}"
        reply.model = model or known
        self._compare_models()

    def _compare_models(self) -> None:
        before = None
        for turn in self.turns:
            if turn.model is not None:
                turn.by_another = before not in (None, turn.model)
                before = turn.model

    def _put(self, turn: ChatTurn) -> None:
        self._tree.add(turn.id, turn.parent)
        self._all[turn.id] = turn
        self._place = None

    @property
    def last(self) -> ChatTurn | None:
        """The last turn of the branch that is shown."""
        return self.turns[-1] if self.turns else None

    @property
    def all_turns(self) -> list[ChatTurn]:
        """The turns of all branches, parents first."""
        return [self._all[key] for key in sorted(self._all)]

    @property
    def empty(self) -> bool:
        """Whether there is no turn on any branch."""
        return not self._all

    def load(self, turns: Iterable[ChatTurn], leaf: int | None) -> None:
        """Load the turns of a chat, parents first, and show the branch that ends in ``leaf``."""
        self._all.clear()
        self._tree = Tree()
        for turn in turns:
            self._put(turn)
        self._show(leaf if leaf in self._all else self._tree.newest_leaf())

    def has(self, identity: int) -> bool:
        """Whether a turn is on any branch."""
        return identity in self._all

    def take_in(self, turns: Iterable[ChatTurn]) -> None:
        """Add turns that another window has saved, parents first, or what has become of them; the
        same branch is shown.
        """
        for turn in turns:
            if self.has(turn.id):
                self._all[turn.id].become(turn)
            else:
                self._put(turn)
        self._compare_models()

    # -- branches ------------------------------------------------------------------------------

    def rewind(self, turn: ChatTurn) -> None:
        """Go back to before ``turn``: the next turn begins another branch."""
        self._show(turn.parent)

    @property
    def place(self) -> tuple[int, int]:
        """Number of the branch that is shown, counted from 1, and the number of branches; after
        `rewind` one that the next turn begins is shown and counted.
        """
        if self._place is None:
            ends = self._ends()
            self._place = (ends.index(self._end) + 1 if ends else 0), len(ends)
        return self._place

    def elsewhere(self, turn: ChatTurn) -> int | None:
        """Number of the newest branch that a turn is on, as in `place`; None where it is shown."""
        if turn in self.turns:
            return None
        return self._ends().index(self._tree.newest_leaf(turn.id)) + 1

    @property
    def _end(self) -> int | None:
        return self.turns[-1].id if self.turns else None

    def _ends(self) -> list[int | None]:
        """The ends of all branches, among them that of the one that is shown."""
        ends: list[int | None] = [*self._tree.leaves()]
        if ends and self._end not in ends:
            ends.insert(ends.index(self._tree.newest_leaf(self._end)) + 1, self._end)
        return ends

    def branch(self, step: int) -> bool:
        """Show the branch ``step`` further; whether there is one."""
        place, count = self.place
        if not 1 <= place + step <= count:
            return False
        self._show(self._ends()[place + step - 1])
        return True

    def show_message(self, identity: int) -> bool:
        """Show the newest branch that has a message; whether there is one."""
        if not self.has(identity):
            return False
        self._show(self._tree.newest_leaf(identity))
        return True

    def _show(self, leaf: int | None) -> None:
        self._place = None
        self.turns[:] = [self._all[step] for step in self._tree.path(leaf)]
        self._compare_models()

    def recipe_of(self, turn: ChatTurn) -> ReplyRecipe | None:
        """How a reply is made again; None where that is not known, or not any more. It is put
        together here, when it is asked for: it has all messages before its reply.
        """
        how = turn.saved_how if turn.made is None else turn.made.how
        if how is None or not self.has(turn.id):
            return None
        begun = [ChatTurn("assistant", turn.text[: how.said])] if how.said else []
        before = _messages(how.system, [*self.branch_to(turn)[:-1], *begun])
        return _saved_recipe(turn, how, before) if turn.made is None else turn.made.recipe(before)

    def forget_recipes(self) -> None:
        """Another model answers: earlier replies cannot be repeated any more."""
        for turn in self._all.values():
            turn.made = turn.saved_how = None

    @property
    def last_reply(self) -> ChatTurn | None:
        """The newest reply that has text."""
        replies = (turn for turn in reversed(self.turns) if turn.role == "assistant" and turn.text)
        return next(replies, None)

    def messages(self) -> tuple[Message, ...]:
        """The messages of the next request."""
        return _messages(self.system, self.turns)


def _messages(system: str | None, turns: Iterable[ChatTurn]) -> tuple[Message, ...]:
    said = (Said(turn.role, turn.text, turn.end, turn.calls, turn.calls_at) for turn in turns)
    return request_messages(system, said)


def _saved_recipe(turn: ChatTurn, how: How, before: tuple[Message, ...]) -> ReplyRecipe | None:
    """The recipe of a saved reply; None where not enough was saved."""
    if turn.stats is None or turn.seed is None or turn.end is None or turn.end == "failed":
        return None
    ids = tuple(token.token for token in turn.tokens[how.start :])
    origins = tuple(token.origin for token in turn.tokens[how.start :])
    reply = Reply(turn.text[how.said :], ids, origins, turn.end, turn.stats, turn.seed)
    return ReplyRecipe(before, reply, how)
