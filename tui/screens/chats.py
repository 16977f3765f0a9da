"""The chat picker: recent chats, and a search over titles and messages."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass

from textual import on, work
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.chats.pictures import shown
from localspec.chats.transfer import branch
from localspec.chats.values import Chat, ChatInfo, ChatMessage, Listed, date_of
from localspec.chats.words import has_all, terms
from localspec.core.errors import ChatsError
from localspec.core.in_thread import in_thread
from tui.input import keymap
from tui.render.lines import EMPTY, Entry, Line, lines_of
from tui.render.text import plain, thought
from tui.screens.sized import PickerScreen
from tui.session.archive import ChatArchive
from tui.terminal.resources import Rests
from tui.widgets.key_bar import KeyBar
from tui.widgets.lines import Lines

_REST_SECONDS = 0.15
"""Pause in typing or moving before the file of chats is asked."""
_YOU = Content.styled("you  ", "$primary")
_INDENT = Content(" " * 5)
_LONGEST = 20_000
"""Characters of a message that the preview typesets."""
_EXCERPT = 400
"""Characters of a message in the preview."""


@dataclass(frozen=True, slots=True)
class Found:
    """A chat in the list, and the message that the search found in it."""

    info: ChatInfo
    message: int | None = None
    """Id of the message; None for a chat that was found by its title."""
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """The choice of the user."""

    id: str
    message: int | None = None
    words: str = ""
    """The search that found the message."""


class Preview(Lines):
    """The chat under the cursor."""

    def show(self, lines: Sequence[Entry]) -> None:
        """Show other lines."""
        self.replace(0, lines)
        self.refresh()  # also the rows next to its border


class ChatsScreen(PickerScreen[Found, Opened | None]):
    """Choose a saved chat; a hit of the search opens at its message."""

    BINDINGS = keymap.of_screen("chats")
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012 - Textual's type

    def __init__(self, archive: ChatArchive, current: str, query: str = "") -> None:
        """``current`` is the id of the chat that is shown."""
        super().__init__()
        self._archive, self._current, self._query = archive, current, query
        self._listed: Sequence[Listed] | None = None
        self._hits: Sequence[Found] = ()
        self._error = ""
        """Why the chats could not be listed."""
        self._failed = ""
        """Why the last search failed."""

    def compose(self) -> ComposeResult:
        """A search, the list, and the beginning of the chat under the cursor."""
        self.take_size(self.app.size)
        yield Static(Content.styled("Chats", "bold $primary"), id="title")
        yield Input(
            self._query, placeholder="search titles and messages", id="query", validate_on=()
        )
        yield self._list
        yield Preview()
        yield KeyBar()

    def on_mount(self) -> None:
        """Start to read the list."""
        self._preview = self.query_one(Preview)
        self._read()

    @work
    async def _read(self) -> None:
        try:
            self._listed = await self._archive.chats()
        except ChatsError as error:
            self._listed, self._error = (), str(error)
        self._fill()
        if self._query:
            self._search()

    # -- the list ------------------------------------------------------------------------------

    @property
    def _typed(self) -> str:
        return self.query_one(Input).value.strip()

    @on(Input.Changed)
    def _changed(self) -> None:
        self._hits, self._failed = (), ""
        self._fill()
        self._search()

    @work(exclusive=True, group="search")
    async def _search(self) -> None:
        """Find messages once the user pauses."""
        query = self._typed
        if not query:
            return
        await asyncio.sleep(_REST_SECONDS)
        try:
            hits, self._failed = await self._archive.search(query), ""
        except ChatsError as error:
            hits, self._failed = [], str(error)
        self._hits = [Found(hit.info, hit.message, hit.excerpt) for hit in hits]
        self._fill()

    def _fill(self) -> None:
        """Show the chats whose titles match, then the messages."""
        query = self._typed
        titled = [
            Found(chat.info)
            for chat in self._listed or ()
            if not query or has_all(chat.info.title, query)
        ]
        at = self.highlighted
        self.shown = [*titled, *self._hits]
        self._list.set_options(Option(self._row(found)) for found in self.shown)
        if self.shown:
            self._list.highlighted = self.shown.index(at) if at in self.shown else 0
        else:
            self._preview.show([Line(Content.styled(self._why_empty(), "$quiet"))])

    def _why_empty(self) -> str:
        if error := self._error or self._failed:
            return plain(error)
        if self._listed is None:
            return "reading …"
        return "no title or message contains this" if self._typed else "there are no chats yet"

    def _row(self, found: Found) -> Content:
        info = found.info
        mark = "● " if info.id == self._current else "  "
        date = Content.styled(f"{mark}{date_of(info.updated):<16}  ", "$quiet")
        title = Content(plain(info.title))
        if not found.excerpt:
            return date + title
        room = max(24, (self._list.content_size.width or self.app.size.width - 4) - len(date) - 3)
        title = title.truncate(max(8, room // 3), ellipsis=True)
        part = _short(found.excerpt, self._typed, max(8, room - len(title)))
        return date + title + "  " + _marked(Content.styled(part, "$quiet"), self._typed)

    # -- the preview ---------------------------------------------------------------------------

    @on(OptionList.OptionHighlighted)
    @work(exclusive=True, group="preview")
    async def _moved(self) -> None:
        await asyncio.sleep(_REST_SECONDS)
        found = self.highlighted
        if found is None:
            return
        try:
            chat = await self._archive.load(found.info.id)
        except ChatsError as error:
            self._preview.show([Line(Content.styled(plain(str(error)), "$text-error"))])
            return
        query, room = self._typed, self._preview.content_size
        self._preview.show(
            await in_thread(lambda gone: _preview(chat, found, query, room, Rests(gone)))
        )

    # -- choosing ------------------------------------------------------------------------------

    @on(OptionList.OptionSelected)
    def action_choose(self) -> None:
        """Open the chat under the cursor."""
        self.after_keys(self._choose)

    def _choose(self) -> None:
        found = self.highlighted
        if found is not None:
            self.dismiss(Opened(found.info.id, found.message, self._typed))


def _preview(chat: Chat, found: Found, query: str, room: Size, rest: Rests) -> list[Entry]:
    """The size of a chat, its system prompt, and as much of its end as has room; or the message
    that was found, from a little before its first word of the search on. For a thread.
    """
    info = chat.info
    head = [Line(Content.styled(plain(_size(chat)), "$quiet"))]
    if info.system:
        head.append(Line(Content.styled(f"system: {_short(info.system, '')}", "$quiet")))
    rows = max(1, room.height - len(head))
    hit = [m for m in chat.messages if m.id == found.message]
    if hit:
        entries = _entries(hit[0], query, rest)
        return [*head, *entries[_first_with(entries, query) :]]
    shown: list[Entry] = []
    for message in reversed(branch(chat)):
        entries = [*_entries(message, query, rest), *([Line(EMPTY)] if shown else [])]
        height = sum(entry.height(max(1, room.width)) for entry in [*entries, *shown])
        if shown and height > rows:
            break
        shown = [*entries, *shown]
    return [*head, *shown]


def _entries(message: ChatMessage, query: str, rest: Rests) -> list[Entry]:
    """A message as the chat shows it, with the words of the search marked."""
    from tui.render.markdown import typeset  # here: it is loaded after the first picture

    if message.role == "user":
        who, entries = _YOU, list[Entry](lines_of(Content(plain(shown(message.text))[:_LONGEST])))
    else:
        who, entries = _INDENT, typeset(_answer(plain(message.text)[:_LONGEST], query), rest=rest)
    marked = [
        dataclasses.replace(entry, content=_marked(entry.content, query))
        if isinstance(entry, Line)
        else entry
        for entry in entries
    ]
    return [entry.led_by(_INDENT if at else who, _INDENT) for at, entry in enumerate(marked)]


def _first_with(entries: Sequence[Entry], query: str) -> int:
    """The place from which to show what was found: a line or two before it."""
    words = [term.casefold() for term in terms(query)]
    places = (i for i, e in enumerate(entries) if any(w in e.text.casefold() for w in words))
    return max(0, next(places, 0) - 2)


def _answer(text: str, query: str) -> str:
    """A reply without its thinking, unless only that has a word of the search."""
    found = thought(text)
    answer = "" if found is None else text[found.answer :]
    searched = [term for term in terms(query) if term.casefold() in text.casefold()]
    kept = [term for term in searched if term.casefold() in answer.casefold()]
    return answer if answer.strip() and (kept or not searched) else text


def _size(chat: Chat) -> str:
    count = len(chat.messages)
    size = "1 message" if count == 1 else f"{count} messages"
    return f"{size}, {chat.info.model}" if chat.info.model else size


def _marked(text: Content, query: str) -> Content:
    """The text with the words of the search marked."""
    for term in terms(query):
        text = text.highlight_regex(f"(?i){re.escape(term)}", style="reverse")
    return text


def _short(text: str, query: str, most: int = _EXCERPT) -> str:
    """One line of a message, around the first word of the search, of at most so many letters."""
    line = " ".join(plain(text).split())
    places = (line.casefold().find(term.casefold()) for term in terms(query))
    at = min((place for place in places if place >= 0), default=0)
    most -= 2  # for the marks of what is left out
    start = max(0, min(at - most // 3, len(line) - most))
    end = start + most
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"
