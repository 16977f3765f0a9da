"""Texts of earlier chats, to draft from: only where the user asks for it (``--remember``).

Nothing is stored for this: it reads the chats that are saved anyway, so a chat that is removed is
not drafted from any more. A draft emits nothing by itself; only what the target would have written
without it is ever shown.
"""

from __future__ import annotations

from pathlib import Path

from localspec.chats import schema
from localspec.chats.store import ChatStore
from localspec.chats.transfer import branch

MOST_CHARACTERS = 1 << 18
"""Characters of all chats together: more than drafters index of them."""


def earlier_texts(path: Path | None = None, most: int = MOST_CHARACTERS) -> tuple[str, ...]:
    """The branches viewed last of the newest chats, a text each, the newest first; at most ``most``
    characters in all.

    Raises:
        ChatsError: the saved chats cannot be read.
    """
    path = path or schema.default_path()
    if not path.exists():
        return ()
    room, found = most, list[str]()
    with ChatStore(path) as store:
        for listed in store.listed():
            chat = store.load(listed.info.id)
            text = "\n\n".join(message.text for message in branch(chat))[-room:]
            room -= len(text)
            found.append(text)
            if room <= 0:
                break
    return tuple(found)
