"""Chats out of and into files: Markdown to read, JSON to keep. docs/chats.md describes both."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Literal

from localspec.chats import calls, pictures
from localspec.chats.tree import Tree
from localspec.chats.values import (
    ENDINGS,
    LATEST,
    Chat,
    ChatInfo,
    ChatMessage,
    date_of,
    new_chat_id,
    new_message_id,
    split_model,
)
from localspec.core import codec
from localspec.core.errors import ChatsError, ChatsFileError, UsageError
from localspec.core.files import whole_file
from localspec.core.json_text import finite

FORMAT = "localspec-chats"
VERSION = 1
LARGEST = 256 << 20
"""Bytes of a file to be imported."""
_DEEPEST = 32
"""Levels of a message's details; those of localspec have five."""


@dataclass(frozen=True, slots=True)
class _Chat:
    """A chat in JSON; the ids of messages count from 1 within it, and parents come first."""

    title: str
    created: float
    updated: float
    named: bool = True
    system: str | None = None
    model: str | None = None
    draft: str | None = None
    leaf: int | None = None
    messages: tuple[ChatMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class _File:
    """The whole file."""

    format: str
    version: int
    chats: tuple[_Chat, ...]
    pictures: dict[str, bytes] = field(default_factory=dict)
    """Files of the pictures that messages show, by their SHA-256."""


def form_of(path: Path) -> Literal["json", "markdown"]:
    """The form of an export by the ending of its name.

    Raises:
        UsageError: no export has that ending.
    """
    form = _FORMS.get(path.suffix.lower())
    if form is None:
        raise UsageError(
            f"{path.name}: an export is Markdown (.md, .markdown, .txt) or JSON (.json)"
        )
    return form


_FORMS: Mapping[str, Literal["json", "markdown"]] = {
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
    ".txt": "markdown",
}


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
    replies = [m for m in messages if m.role == "assistant"]
    models, drafts = (
        list(dict.fromkeys(names))
        for names in ((m.model for m in replies), (m.draft for m in replies))
    )
    named = ", ".join(filter(None, models)) or info.model
    drafted = ", ".join(filter(None, drafts))
    drafted = f"draft model: {drafted}" if drafted else ""
    about = filter(None, [named, drafted, date_of(info.created)])
    parts = [f"# {info.title}", f"*{' · '.join(about)}*"]
    if info.system:
        parts.append("\n".join(f"> {line}".rstrip() for line in info.system.splitlines()))
    for message in messages:
        label = "You" if message.role == "user" else "Model"
        if message.role == "assistant":
            label += _by(message, many_models=len(models) > 1, many_drafts=len(drafts) > 1)
        text = calls.as_markdown(message.text, *calls.saved(message.details))
        parts += filter(None, [f"## {label}", text.strip("\n")])
        if message.ended in _ENDS:
            parts.append(f"*({_ENDS[message.ended]})*")
    return "\n\n".join(parts) + "\n"


def _by(reply: ChatMessage, *, many_models: bool, many_drafts: bool) -> str:
    """Who wrote a reply, as far as that differs within the chat."""
    draft = f"draft model: {reply.draft}" if reply.draft else "without a draft model"
    names = [reply.model if many_models else None, draft if many_drafts else None]
    known = ", ".join(filter(None, names))
    return f" ({known})" if known else ""


_ENDS = {**ENDINGS, "interrupt": "stopped"}  # whoever reads an export did not stop it


def to_json(chats: Sequence[Chat]) -> str:
    """All of the chats: branches, system prompt, what is known of each reply.

    Raises:
        ChatsFileError: a chat cannot be written as JSON; the message names it.
    """
    texts = (message.text for chat in chats for message in chat.messages)
    shown = pictures.of_texts(texts)
    whole = _File(FORMAT, VERSION, tuple(_exported(chat) for chat in chats), shown)
    try:
        data = codec.encode(whole)
        if not shown:
            del data["pictures"]
        text = json.dumps(data, ensure_ascii=False, indent=1) + "\n"
    except RecursionError:  # imported by an older localspec
        deep = next(c.info for c in chats if any(_depth(m.details) > _DEEPEST for m in c.messages))
        raise ChatsFileError(
            f"chat {deep.id} holds figures that are nested too deeply to be written; export the "
            "others by their ids, or erase this one"
        ) from None
    # Halves of characters, which the details of a reply may hold, are not UTF-8.
    return _HALVES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_HALVES = re.compile("[\ud800-\udfff]")


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
            replace(m, id=numbers[m.id], parent=None if m.parent is None else numbers[m.parent])
            for m in chat.messages
        ),
    )


def read(file: BinaryIO) -> bytes:
    """The bytes of a file to be imported.

    Raises:
        ChatsFileError: it is larger than `LARGEST`.
        OSError: it cannot be read.
    """
    raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise ChatsFileError(f"larger than {LARGEST >> 20} MB; export fewer chats into one file")
    return raw


def read_file(path: Path) -> bytes:
    """`read` the file at ``path``."""
    with path.open("rb") as file:
        return read(file)


def from_json(text: str, tell: Callable[[str], None] = lambda _: None) -> list[Chat]:
    """The chats of a file, with new ids: importing never changes a chat that is there.

    The file may be a stranger's. The address of a server is left out, or `chat -c` would send the
    user's key and the conversation there; ``tell`` is called with a line about it.

    Raises:
        ChatsFileError: it is not such a file; the message names the place.
        ChatsError: its pictures cannot be stored.
    """
    try:
        data = json.loads(text, parse_constant=_refuse, parse_float=finite)
    except ValueError as error:
        raise ChatsFileError(f"not JSON: {error}") from None
    except RecursionError:
        raise ChatsFileError("not JSON: nested too deeply") from None
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
    for n, chat in enumerate(whole.chats, 1):
        for m in chat.messages:
            if _depth(m.details) > _DEEPEST:
                raise ChatsFileError(
                    f"not an export of localspec: chat {n}: the details of message {m.id} are "
                    "nested too deeply"
                )
    found = [_imported(chat, f"chat {n}", tell) for n, chat in enumerate(whole.chats, 1)]
    pictures.restore(whole.pictures)
    return found


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _depth(value: object) -> int:
    """Levels of lists and objects in a JSON value, counted no further than needed."""
    level, depth = [value], 0
    while depth <= _DEEPEST:
        level = [
            item
            for found in level
            if isinstance(found, Mapping | list)
            for item in (found.values() if isinstance(found, Mapping) else found)
        ]
        if not level:
            break
        depth += 1
    return depth


def _model_here(chat: _Chat, tell: Callable[[str], None]) -> str | None:
    """The model of an imported chat, where that is none of a server."""
    there = split_model(chat.model)
    if there is None:
        return chat.model
    tell(
        f"'{chat.title}' was answered at {there[0]}; which server continues it is yours to say: "
        "--url or --connect"
    )
    return None


def _imported(chat: _Chat, where: str, tell: Callable[[str], None]) -> Chat:
    tree = Tree()
    ids: dict[int, int] = {}
    messages = []
    times = {"created": chat.created, "updated": chat.updated}
    times |= {f"created of message {m.id}": m.created for m in chat.messages}
    for name, seconds in times.items():
        if not 0 <= seconds <= LATEST:
            raise ChatsFileError(
                f"not an export of localspec: {where}: {name} is {seconds:g}, which is not a time "
                "between the years 1970 and 9999"
            )
    for m in chat.messages:
        try:
            tree.add(m.id, m.parent)
        except ValueError as error:
            raise ChatsFileError(f"not an export of localspec: {where}: {error}") from None
        parent = None if m.parent is None else ids[m.parent]
        ids[m.id] = new_message_id(parent)
        messages.append(replace(m, id=ids[m.id], parent=parent))
    if chat.leaf is not None and chat.leaf not in ids:
        raise ChatsFileError(
            f"not an export of localspec: {where}: leaf {chat.leaf} is not a message"
        )
    info = ChatInfo(
        id=new_chat_id(),
        title=chat.title,
        named=chat.named,
        system=chat.system,
        model=_model_here(chat, tell),
        leaf=None if chat.leaf is None else ids[chat.leaf],
        created=chat.created,
        # One of the future would stay the chat used last, whatever is used after it.
        updated=min(chat.updated, time.time()),
        draft=chat.draft,
    )
    return Chat(info, tuple(messages))


def write(path: Path, text: str) -> None:
    """Write a new file that only its owner can read.

    Raises:
        ChatsError: it is there already, or cannot be written; nothing is left of it then.
    """
    try:
        whole_file.create(path, text.encode("utf-8", "replace"))
    except FileExistsError:
        raise ChatsError(f"{path} is there already; give another name") from None
    except OSError as error:
        raise ChatsError(f"cannot write {path}: {error.strerror}") from None
