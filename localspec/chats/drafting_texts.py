"""What earlier chats said, to draft from: only where the person asks for it (``--remember``).

Nothing is stored for this: it reads the chats that are saved anyway, so a chat that is removed is
not drafted from any more. A draft says nothing by itself; only what the target would have written
without it is ever shown.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from localspec.chats import schema
from localspec.chats.store import ChatStore
from localspec.chats.transfer import branch

MOST_TOKENS = 1 << 15
"""Of all chats together: about 10 MB of index, made in a tenth of a second."""


def remembered(
    tokenize: Callable[[str], list[int]], path: Path | None = None, most: int = MOST_TOKENS
) -> list[list[int]]:
    """Tokens of the branches looked at last of the newest chats, the oldest chat first; at most
    ``most`` tokens in all.

    Raises:
        ChatsError: the saved chats cannot be read.
    """
    path = path or schema.default_path()
    if not path.exists():
        return []
    room, found = most, list[list[int]]()
    with ChatStore(path) as store:
        for listed in store.listed():
            chat = store.load(listed.info.id)
            tokens = tokenize("\n\n".join(message.text for message in branch(chat)))[-room:]
            room -= len(tokens)
            found.append(tokens)
            if room <= 0:
                break
    return found[::-1]


__all__ = ["MOST_TOKENS", "remembered"]
