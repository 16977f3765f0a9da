"""The calls of tools in a reply as a chat keeps them, read while the model writes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from localspec.chats.calls import SavedCall
from localspec.core.events import Finished, ReplyEvent, ReplyFormat, Token
from localspec.grammar.call_splitter import held_back
from localspec.grammar.reply_parts import CallArguments, CallBegin, CallEnd, Content
from localspec.grammar.reply_reader import ReplyReader
from localspec.grammar.tool_families import FAMILIES, Family
from localspec.grammar.tools import Choice
from localspec.tools.toolbox import RequestTools
from localspec.tools.values import OfferedTool


class WrittenCalls:
    """Reads the events of one reply that may call tools."""

    def __init__(self, tools: RequestTools) -> None:
        self._tools: Sequence[OfferedTool] = tools.tools
        self._reader = ReplyReader(Choice.of(tools.grammar).tools)
        self._family: Family | None = None
        self._searched = 0
        self._answered = False
        """Whether the reply has text that belongs to no call."""
        self._ended = False
        """Whether the model ended it."""
        self.text = ""
        """The whole text, markers and calls included."""
        self.calls: list[SavedCall] = []
        self.at: int | None = None
        """Where in the text the calls begin; None without any."""
        self.held = 0
        """Characters at the end of the text that may be the beginning of a call."""

    @property
    def said(self) -> str:
        """The text without the calls, as far as it is sure to belong to none."""
        if self.at is not None:
            return self.text[: self.at].rstrip()
        return self.text[: len(self.text) - self.held]

    @property
    def act(self) -> bool:
        """Whether the reply ended by itself, and has calls to be run."""
        return self._ended and any(call.state == "waiting" for call in self.calls)

    def take(self, event: ReplyEvent) -> None:
        """Read an event."""
        match event:
            case ReplyFormat(tools=str(name)):
                self._family = FAMILIES[name]
            case Token(text=text):
                self.text += text
            case Finished(reply):
                self.text, self._ended = reply.text, reply.finish_reason == "stop"
            case _:
                return
        for part in self._reader.parts((event,)):
            match part:
                case Content():
                    self._answered = True
                case CallBegin(_, identity, name):
                    place = next((t.place for t in self._tools if t.name == name), name)
                    self.calls.append(SavedCall(identity, name, "", place))
                case CallArguments(index, text):
                    call = self.calls[index]
                    more = dataclasses.replace(call, arguments=call.arguments + text)
                    self.calls[index] = more
                # What cannot be told to the model with its result does not run.
                case CallEnd(index, True) if self.calls[index].whole:
                    self.calls[index] = dataclasses.replace(self.calls[index], state="waiting")
                case _:
                    pass
        self._find_begin(over=isinstance(event, Finished))

    def _find_begin(self, *, over: bool) -> None:
        """Look for the first marker of a call in the text."""
        text, family = self.text, self._family
        self.held = 0
        if self.at is not None or family is None or self._reader.thinking:
            self._searched = len(text)
        elif family.open:
            at = text.find(family.open, max(0, self._searched - len(family.open)))
            self._searched = len(text)
            if at >= 0:
                self.at = at
            elif not over:
                self.held = held_back(text, family.open)
        elif not self._answered and text[self._searched :].lstrip().startswith(
            ("{", *family.markers)
        ):
            self.at = self._searched
