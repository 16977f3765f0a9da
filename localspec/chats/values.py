"""Saved chats and their messages."""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from localspec.core.safe_text import JOINERS

End = Literal["stop", "length", "interrupt", "failed"]
ENDINGS: Mapping[str, str] = {
    "length": "stopped at the limit",
    "interrupt": "stopped by you",
    "failed": "cut short",
}
"""How a reply ended, in words for the user; a reply that ended by itself has none."""
_TITLE = 60
"""Characters of a title made from a message."""
_RANDOM_BITS = 10
MODEL, DRAFT = "model", "draft"
"""Keys of a message's details: the model that wrote it, and the draft model that helped."""
LATEST = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC).timestamp()
"""Times from 1970 to this one can be written as a date in every time zone."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message. Those with the same parent are branches: edits or other replies."""

    id: int
    """Larger than the parent's; of siblings the larger one is the newer one."""
    parent: int | None
    role: Literal["user", "assistant"]
    text: str
    created: float
    """Seconds since 1970."""
    end: End | None = None
    """How a reply ended; None for the user's messages, and where the writer was killed."""
    details: Mapping[str, Any] | None = None
    """Further properties of the message, as JSON values."""

    @property
    def ended(self) -> End | None:
        """How a reply ended; one without an end was cut short, as its writer was."""
        return self.end or ("failed" if self.role == "assistant" else None)

    @property
    def model(self) -> str | None:
        """The model that wrote a reply, as the user named it; None where that was not saved."""
        model = (self.details or {}).get(MODEL)
        return model if isinstance(model, str) else None

    @property
    def draft(self) -> str | None:
        """The draft model that helped with a reply; None without one, or where not saved."""
        draft = (self.details or {}).get(DRAFT)
        return draft if isinstance(draft, str) else None


@dataclass(frozen=True, slots=True)
class ChatInfo:
    """A chat without its messages."""

    id: str
    title: str
    named: bool
    """Whether the user chose the title."""
    system: str | None
    model: str | None
    """Name that the user gave last."""
    leaf: int | None
    """The last message of the branch viewed last."""
    created: float
    updated: float
    deleted: float | None = None
    """When it was removed; it can be restored until it is purged."""
    draft: str | None = None
    """The draft as the user named it; None: the one that belongs to the model."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat with all its branches; messages in the order of their ids, so parents come first."""

    info: ChatInfo
    messages: tuple[ChatMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """What became of the chats that were written; ids."""

    erased: frozenset[str] = frozenset()
    """Erased for good before; nothing of them was written."""
    removed: frozenset[str] = frozenset()
    """Written, and not on the list: they were removed from it."""
    restored: frozenset[str] = frozenset()
    """On the list again, since a message was written after they had been removed."""
    moved: Mapping[int, int] = field(default_factory=dict)
    """New rows of messages, by the old ones, which other windows have changed or gone on from."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of the list of chats."""

    info: ChatInfo
    messages: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A message found by a search."""

    info: ChatInfo
    message: int
    role: str
    excerpt: str
    """One line around the first place."""


def date_of(seconds: float) -> str:
    """A time in seconds since 1970, as local date and time; for times without one, a word."""
    if not 0 <= seconds <= LATEST:
        return "unknown date"
    return datetime.datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


_AT_SERVER = "#/"
"""Separates an address and the name of a model there."""


def model_at(server: str, model: str) -> str:
    """The name of a model of a server, as chats save it."""
    return f"{server}{_AT_SERVER}{model}"


def split_model(name: str | None) -> tuple[str, str] | None:
    """Server and model of such a name; None for a model of this machine."""
    if name is None or not name.startswith(("http://", "https://", "unix:")):
        return None
    server, mark, model = name.partition(_AT_SERVER)
    return (server, model) if mark else None


class _Clock:
    """Ids that grow with time, also within a microsecond and when the clock is set back: what two
    windows then write below the same message gets different ids all the same.
    """

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def next(self, after: int) -> int:
        noise = int.from_bytes(os.urandom(4), "little")
        now = int(time.time() * 1e6) << _RANDOM_BITS | noise % (1 << _RANDOM_BITS)
        with self._lock:
            if after >= now:
                now = after + 1 + noise
            self._last = max(now, self._last + 1)
            return self._last


_clock = _Clock()


def new_message_id(parent: int | None = None) -> int:
    """An id for a message; two processes that write at once get different ones."""
    return _clock.next(parent or 0)


def new_message_id_beside(message: int) -> int:
    """An id right behind another one, for a sibling that has what will follow that one."""
    return message + 1 + os.urandom(1)[0]


def new_chat_id() -> str:
    """Ten letters and digits; users type the first few."""
    return os.urandom(5).hex()


def title_of(text: str) -> str:
    """A title from a first message: its first line, cut at a word."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    kept = (c if c.isprintable() or c in JOINERS else " " for c in line)
    line = " ".join("".join(kept).split())
    if len(line) <= _TITLE:
        return line or "untitled"
    cut = line[:_TITLE]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[_TITLE // 2 :] else cut}…"


def started(
    system: str | None = None, model: str | None = None, draft: str | None = None
) -> ChatInfo:
    """A chat that begins now."""
    now = time.time()
    return ChatInfo(new_chat_id(), "untitled", False, system, model, None, now, now, draft=draft)
