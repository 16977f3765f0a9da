"""Chats and messages as rows of the file, and the statements that write them."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from localspec.chats.values import ChatInfo, ChatMessage

INFO = "id, title, named, system, model, leaf, created, updated, deleted, draft"
MESSAGE = "id, parent, role, text, created, ended, details"
PUT_CHAT = """INSERT INTO chats
    (id, title, named, system, model, leaf, created, updated, draft)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id)"""
NEWER_INFO = """DO UPDATE SET
    title = iif(named, title, excluded.title),
    named = named OR excluded.named,
    leaf = excluded.leaf, updated = max(updated, excluded.updated)"""
GIVE = {
    "title": "UPDATE chats SET title = ?, named = 1 WHERE id = ?",
    "system": "UPDATE chats SET system = ? WHERE id = ?",
    "model": "UPDATE chats SET model = ?, draft = ? WHERE id = ?",
}
"""What the user gives a chat: it is written where it was given, and else stays what it is in the
file, where another window may have changed it."""
PUT_MESSAGE = """INSERT INTO messages (chat, id, parent, role, text, created, ended, details)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id)
DO UPDATE SET text = excluded.text, ended = excluded.ended, details = excluded.details"""
NEWER = """WHERE messages.ended IS NULL AND excluded.ended NOT NULL
    AND length(excluded.text) >= length(messages.text)"""
"""Of two texts of a reply the finished one, unless the other is a longer continuation of it."""


def of_chat(i: ChatInfo) -> tuple[Any, ...]:
    """The values of `PUT_CHAT`."""
    (title,), (system,), (model, draft) = (_given(i, what) for what in GIVE)
    return (i.id, title, i.named, system, model, i.leaf, i.created, i.updated, draft)


def given(info: ChatInfo, before: ChatInfo) -> frozenset[str]:
    """What of `GIVE` the user has given a chat since ``before``."""
    changed = {what for what in GIVE if _given(info, what) != _given(before, what)}
    if not info.named:
        changed.discard("title")
    elif not before.named:
        changed.add("title")
    return frozenset(changed)


def give(db: sqlite3.Connection, info: ChatInfo, what: Iterable[str]) -> None:
    """Write what of `GIVE` the user has given a chat."""
    for one in what:
        db.execute(GIVE[one], (*_given(info, one), info.id))


def _given(i: ChatInfo, what: str) -> tuple[str | None, ...]:
    texts = {"title": (i.title,), "system": (i.system,), "model": (i.model, i.draft)}[what]
    return tuple(text and clean(text) for text in texts)


def of_message(chat: str, m: ChatMessage) -> tuple[Any, ...]:
    """The values of `PUT_MESSAGE`."""
    details = None if m.details is None else json.dumps(m.details)
    return (chat, m.id, m.parent, m.role, clean(m.text), m.created, m.end, details)


def info(row: tuple[Any, ...]) -> ChatInfo:
    """A chat of the columns `INFO`."""
    values = list(row)
    values[2] = bool(values[2])
    return ChatInfo(*values)


def message(row: tuple[Any, ...]) -> ChatMessage:
    """A message of the columns `MESSAGE`."""
    id, parent, role, text, created, end, details = row  # noqa: A001 - as above
    try:
        found = None if details is None else json.loads(details)
    except (ValueError, TypeError, RecursionError):
        found = None  # figures of a damaged file; the text is what counts
    known = found if isinstance(found, dict) else None
    return ChatMessage(id, parent, role, text, created, end, known)


def clean(text: str) -> str:
    """Unpaired surrogates, which half a character may leave behind, cannot be stored."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


def joined(messages: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Messages in the order of their ids as a tree: one that follows none of those before it, as in
    a damaged file, begins a branch.
    """
    found: dict[int, ChatMessage] = {}
    for m in messages:
        found[m.id] = m if m.parent in found else dataclasses.replace(m, parent=None)
    return tuple(found.values())
