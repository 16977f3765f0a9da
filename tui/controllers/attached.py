"""What the files cost that a message names: their tokens, shown before it is sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from localspec.errors import LocalspecError
from tui.input.attachments import AttachError, Attachment, attachments, names_files
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

    async def measured(self, text: str) -> str:
        """The costs of the files that a text names, in words, after a pause; "" for none."""
        if not names_files(text):
            return ""
        await asyncio.sleep(_PAUSE)
        try:
            cost = await self.cost(text)
        except AttachError as error:
            return str(error)
        return cost.line if cost.files else ""

    async def cost(self, text: str) -> Cost:
        """The tokens of the files that a text names.

        Raises:
            AttachError: a file cannot be attached.
        """
        found = await asyncio.to_thread(attachments, text, as_words=True)
        return await self.of(found)

    async def require_room(self, found: list[Attachment]) -> None:
        """Refuse files that the context cannot hold.

        Raises:
            AttachError: some do not fit; the text names them.
        """
        cost = await self.of(found)
        if cost.left_out:
            raise AttachError(f"too much for the context: {cost.line}")

    async def of(self, found: list[Attachment]) -> Cost:
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
            room = max(0, engine.info.context - self._session.chat.meter.used)
        return Cost(tuple(files), exact, room)


__all__ = ["AttachedFiles", "Cost"]
