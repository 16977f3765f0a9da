"""Attached files, and what fills the context."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from localspec.core.errors import LocalspecError
from localspec.core.in_thread import in_thread
from tui.controllers.chat_context import ChatContext
from tui.input.attachments import AttachError, Attachment, read
from tui.input.message_draft import Draft, names_files
from tui.session.open_chat import OpenChat
from tui.session.session import Session

_PAUSE = 0.4
"""Seconds without a key before files are read."""
_FEW = 4
"""Files that are told one by one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of the files of a message."""

    files: tuple[tuple[str, int], ...]
    exact: bool
    """Whether the model's own vocabulary counted."""
    room: int
    """Tokens of the context that are free; 0 where that is not known."""

    @property
    def total(self) -> int:
        """Tokens of all files."""
        return sum(tokens for _, tokens in self.files)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the files that do not fit any more after those before them."""
        if not self.room:
            return ()
        names, used = [], 0
        for name, tokens in self.files:
            if used + tokens > self.room:
                names.append(name)
            else:
                used += tokens
        return tuple(names)

    @property
    def line(self) -> str:
        """The costs in words."""
        about = "" if self.exact else "about "
        count = len(self.files)
        text = f"{'1 file' if count == 1 else f'{count} files'}: {about}{self.total:,} tokens"
        if self.room:
            text += f" of {self.room:,} free"
        if self.left_out:
            rest = len(self.left_out) - _FEW
            more = f" and {rest} more" if rest > 0 else ""
            text += f" · does not fit: {', '.join(self.left_out[:_FEW])}{more}"
        if 1 < count <= _FEW:
            text += "".join(f" · {name} {tokens:,}" for name, tokens in self.files)
        return text


class AttachedFiles:
    """Measures the files of the message that is being written."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._counted: dict[str, int] = {}
        """Tokens by text, of the model that is loaded."""
        self._model: object = None

    def draft(self, text: str, pasted: tuple[str, ...]) -> Draft:
        """A message as it is written in the chat that is shown."""
        edited = self._session.chat.editing
        return Draft(text, pasted, "" if edited is None else edited.text)

    async def measured(self, text: str, pasted: tuple[str, ...]) -> str:
        """The costs of the files that a text names, in words, after a pause; "" for none."""
        if not names_files(text):
            return ""
        await asyncio.sleep(_PAUSE)
        try:
            draft = self.draft(text, pasted)
            found = await in_thread(lambda gone: read(draft, as_words=True, cancelled=gone))
        except AttachError as error:
            return str(error)
        cost = await self._cost(found.texts, self._session.chat)
        return cost.line if cost.files else ""

    async def require_room(self, found: list[Attachment], chat: OpenChat) -> None:
        """Refuse files that the context cannot hold after the messages of a chat.

        Raises:
            AttachError: some do not fit; the text names them.
        """
        cost = await self._cost(found, chat)
        if cost.left_out:
            raise AttachError(f"too much for the context: {cost.line}")

    async def _cost(self, found: list[Attachment], chat: OpenChat) -> Cost:
        """The tokens of some files."""
        engine = self._session.engine
        if engine.info is not self._model:
            self._counted.clear()
            self._model = engine.info
        exact, files = True, []
        for one in found:
            tokens = self._counted.get(one.block)
            if tokens is None:
                try:
                    tokens = await engine.count(one.block)
                except LocalspecError:
                    tokens = None
                if tokens is not None:
                    self._counted[one.block] = tokens
            exact = exact and tokens is not None
            files.append((one.name, len(one.block) // 3 if tokens is None else tokens))
        room = 0
        if engine.info is not None and engine.info.context:
            room = max(0, engine.info.context - chat.meter.used)
        return Cost(tuple(files), exact, room)


_BRIEF = 60
"""Characters of a message in its row."""


class ContextCosts:
    """Counts by the vocabulary of the model that is loaded."""

    def __init__(self, context: ChatContext) -> None:
        self._session, self._feedback = context.session, context.feedback

    async def show(self) -> None:
        """List the messages of the branch that is shown, with their tokens."""
        try:
            rows = await self._rows()
        except LocalspecError as error:
            await self._feedback.note(str(error), error=True)
            return
        if rows is None:
            self._feedback.hint("tokens are counted by a model of this machine, once it is loaded")
        else:
            await self._feedback.show_list("Tokens in the context, without the template's", rows)

    async def _rows(self) -> list[tuple[str, str]] | None:
        session = self._session
        parts: list[tuple[str, str]] = []
        conversation = session.chat.conversation
        if conversation.system:
            parts.append(("system", conversation.system))
        for turn in conversation.turns:
            parts.append(("you" if turn.role == "user" else "model", turn.text))
            parts += [(f"result of {call.place}", call.said) for call in turn.calls]
        rows, total = [], 0
        for who, text in parts:
            if not text:
                continue
            tokens = await session.engine.count(text)
            if tokens is None:
                return None
            total += tokens
            rows.append((f"{tokens:,}", f"{who}: {' '.join(text[: 2 * _BRIEF].split())[:_BRIEF]}"))
        tools = session.tools.request()
        if tools is not None and (tokens := await session.engine.count_tools(tools)) is not None:
            total += tokens
            names = ", ".join(tool.name for tool in tools.tools)
            rows.append((f"{tokens:,}", f"tools: {names[:_BRIEF]}"))
        info = session.engine.info
        size = f" of {info.context:,}" if info is not None and info.context else ""
        return [(f"{total:,}", f"in all{size}"), *rows]
