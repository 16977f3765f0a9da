"""Chats out of and into files: Markdown to read, JSON to keep. docs/chats.md describes both."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from localspec.chats.tree import Tree
from localspec.chats.values import (
    LATEST,
    Chat,
    ChatInfo,
    ChatMessage,
    End,
    date_of,
    new_chat_id,
    new_message_id,
)
from localspec.core import codec
from localspec.errors import ChatsError, ChatsFileError

FORMAT = "localspec-chats"
VERSION = 1


@dataclass(frozen=True, slots=True)
class _Message:
    """A message in JSON; ids count from 1 within the chat, and parents come first."""

    id: int
    parent: int | None
    role: Literal["user", "assistant"]
    text: str
    created: float
    end: End | None = None
    details: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Chat:
    """A chat in JSON."""

    title: str
    created: float
    updated: float
    named: bool = True
    system: str | None = None
    model: str | None = None
    draft: str | None = None
    leaf: int | None = None
    messages: tuple[_Message, ...] = ()


@dataclass(frozen=True, slots=True)
class _File:
    """The whole file."""

    format: str
    version: int
    chats: tuple[_Chat, ...]


def branch(chat: Chat) -> list[ChatMessage]:
    """The messages from the first one to the chat's leaf."""
    messages = {m.id: m for m in chat.messages}
    tree = Tree((m.id, m.parent) for m in chat.messages)
    leaf = chat.info.leaf if chat.info.leaf in messages else tree.newest_leaf()
    return [messages[key] for key in tree.path(leaf)]


def to_markdown(chat: Chat) -> str:
    """The branch looked at last, to be read; other branches and figures are left out."""
    info = chat.info
    messages = branch(chat)
    models = list(dict.fromkeys(m.model for m in messages if m.role == "assistant"))
    named = ", ".join(filter(None, models)) or info.model
    parts = [f"# {info.title}", f"*{' · '.join(filter(None, [named, date_of(info.created)]))}*"]
    if info.system:
        parts.append("\n".join(f"> {line}".rstrip() for line in info.system.splitlines()))
    for message in messages:
        label = "You" if message.role == "user" else "Model"
        if len(models) > 1 and message.model is not None:
            label = f"{label} ({message.model})"
        parts += [f"## {label}", message.text.strip("\n")]
        if message.end in ("interrupt", "length", "failed"):
            parts.append(f"*({_ENDS[message.end]})*")
    return "\n\n".join(parts) + "\n"


_ENDS = {"interrupt": "stopped", "length": "stopped at the limit", "failed": "cut short"}


def to_json(chats: Sequence[Chat]) -> str:
    """All of the chats: branches, system prompt, what is known of each reply."""
    whole = _File(FORMAT, VERSION, tuple(_exported(chat) for chat in chats))
    return json.dumps(codec.encode(whole), ensure_ascii=False, indent=1) + "\n"


def _exported(chat: Chat) -> _Chat:
    numbers = {m.id: number for number, m in enumerate(chat.messages, 1)}
    info = chat.info
    return _Chat(
        title=info.title,
        created=info.created,
        updated=info.updated,
        named=info.named,
        system=info.system,
        model=info.model,
        draft=info.draft,
        leaf=numbers.get(info.leaf) if info.leaf is not None else None,
        messages=tuple(
            _Message(
                id=numbers[m.id],
                parent=None if m.parent is None else numbers[m.parent],
                role=m.role,
                text=m.text,
                created=m.created,
                end=m.end,
                details=None if m.details is None else dict(m.details),
            )
            for m in chat.messages
        ),
    )


def from_json(text: str) -> list[Chat]:
    """The chats of a file, with new ids: importing never changes a chat that is there.

    Raises:
        ChatsFileError: it is not such a file; the message names the place.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ChatsFileError(f"not JSON: {error}") from None
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ChatsFileError(f'not an export of localspec: "format" is not "{FORMAT}"')
    if data.get("version") != VERSION:
        raise ChatsFileError(
            f"exported in version {data.get('version')}, and this localspec reads version "
            f"{VERSION}; update localspec"
        )
    try:
        whole = codec.decode(_File, data, "file")
    except codec.CodecError as error:
        raise ChatsFileError(f"not an export of localspec: {error}") from None
    return [_imported(chat, f"chat {n}") for n, chat in enumerate(whole.chats, 1)]


def _imported(chat: _Chat, where: str) -> Chat:
    tree = Tree()
    ids: dict[int, int] = {}
    messages = []
    times = {"created": chat.created, "updated": chat.updated}
    times |= {f"created of message {m.id}": m.created for m in chat.messages}
    for name, seconds in times.items():
        if not 0 <= seconds <= LATEST:
            raise ChatsFileError(
                f"not an export of localspec: {where}: {name} is {seconds:g}, which is no time "
                "between the years 1970 and 9999"
            )
    for m in chat.messages:
        try:
            tree.add(m.id, m.parent)
        except ValueError as error:
            raise ChatsFileError(f"not an export of localspec: {where}: {error}") from None
        parent = None if m.parent is None else ids[m.parent]
        ids[m.id] = new_message_id(parent)
        messages.append(ChatMessage(ids[m.id], parent, m.role, m.text, m.created, m.end, m.details))
    if chat.leaf is not None and chat.leaf not in ids:
        raise ChatsFileError(f"not an export of localspec: {where}: leaf {chat.leaf} is no message")
    info = ChatInfo(
        id=new_chat_id(),
        title=chat.title,
        named=chat.named,
        system=chat.system,
        model=chat.model,
        leaf=None if chat.leaf is None else ids[chat.leaf],
        created=chat.created,
        updated=chat.updated,
        draft=chat.draft,
    )
    return Chat(info, tuple(messages))


def write(path: Path, text: str) -> None:
    """Write a new file that only its owner can read.

    Raises:
        ChatsError: it is there already, or cannot be written.
    """
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode("utf-8"))
    except FileExistsError:
        raise ChatsError(f"{path} is there already; give another name") from None
    except OSError as error:
        raise ChatsError(f"cannot write {path}: {error.strerror}") from None
