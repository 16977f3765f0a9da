"""The calls of tools in a reply, read while the model writes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from localspec.chats.calls import SavedCall
from localspec.core.events import Finished, ReplyEvent, ReplyFormat, Token
from localspec.grammar.tool_families import FAMILIES, Family
from localspec.grammar.tools import Choice, held_back
from localspec.serve.replies.reply_parts import CallArguments, CallBegin, CallEnd, Content
from localspec.serve.replies.reply_reader import ReplyReader
from localspec.tools.toolbox import RequestTools
from localspec.tools.values import OfferedTool
from tui.session.conversation import ChatTurn


class WrittenCalls:
    """Keeps `ChatTurn.calls` and `ChatTurn.calls_at` in step with the text of a reply."""

    def __init__(self, turn: ChatTurn, tools: RequestTools) -> None:
        self._turn = turn
        self._tools: Sequence[OfferedTool] = tools.tools
        self._reader = ReplyReader(Choice.of(tools.grammar).tools)
        self._family: Family | None = None
        self._searched = 0
        self._answered = False
        """Whether the reply has text that belongs to no call."""

    def take(self, event: ReplyEvent) -> None:
        """An event, after its text was added to the turn."""
        if isinstance(event, ReplyFormat) and event.tools is not None:
            self._family = FAMILIES[event.tools]
        for part in self._reader.parts((event,)):
            match part:
                case Content():
                    self._answered = True
                case CallBegin(_, identity, name):
                    place = next((t.place for t in self._tools if t.name == name), name)
                    self._turn.calls.append(SavedCall(identity, name, "", place))
                case CallArguments(index, text):
                    call = self._turn.calls[index]
                    more = dataclasses.replace(call, arguments=call.arguments + text)
                    self._turn.calls[index] = more
                case CallEnd(index, complete) if complete:
                    call = self._turn.calls[index]
                    self._turn.calls[index] = dataclasses.replace(call, state="waiting")
                case _:
                    pass
        if self._turn.calls_at is None and isinstance(event, Token | Finished):
            self._turn.calls_at = at = self._begin()
            marker = self._family.open if self._family is not None else ""
            over = isinstance(event, Finished) or at is not None or not marker
            self._turn.held = 0 if over else held_back(self._turn.text, marker)

    def _begin(self) -> int | None:
        """Where the first marker of a call is in the text; None where there is none yet."""
        text, family = self._turn.text, self._family
        if family is None or self._reader.thinking:
            self._searched = len(text)
            return None
        if family.open:
            at = text.find(family.open, max(0, self._searched - len(family.open)))
            self._searched = len(text)
            return at if at >= 0 else None
        begun = text[self._searched :].lstrip()
        bare = not self._answered and begun.startswith(("{", *family.markers))
        return self._searched if bare else None


__all__ = ["WrittenCalls"]
