"""Two versions of a chat: as it is here, and as another window has saved it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from localspec.chats import calls, rows
from localspec.chats.calls import SavedCall
from localspec.chats.values import Chat, ChatMessage
from tui.session.conversation import ChatTurn


def is_news(theirs: ChatTurn, ours: ChatTurn | None) -> bool:
    """Whether a turn as it is saved says more than the one here. Without an end, that one grows."""
    if ours is None:
        return True
    if ours.role == "user" or ours.end is None or not theirs.text.startswith(ours.text):
        return False
    return _progress(theirs, theirs.calls) > _progress(ours, ours.calls)


def differs(theirs: ChatTurn, ours: ChatTurn) -> bool:
    """Whether whoever goes on from a turn as it is saved has seen something else than is here."""
    states = ([call.state for call in turn.calls] for turn in (theirs, ours))
    return theirs.text != rows.clean(ours.text) or next(states) != next(states)


def _progress(reply: ChatTurn | ChatMessage, called: Iterable[SavedCall]) -> tuple[int, bool, int]:
    """How far a reply has come; one that broke off may be growing still, in another window."""
    over = sum(call.state not in ("written", "waiting", "running") for call in called)
    return len(reply.text), reply.end not in (None, "failed"), over


def _longer(saved: ChatMessage, shown: ChatMessage | None) -> bool:
    """Whether a message has grown in another window since it was read here."""
    if shown is None or shown.role == "user" or not saved.text.startswith(shown.text):
        return shown is None
    now, then = (_progress(m, calls.saved(m.details)[0]) for m in (saved, shown))
    return now > then


def together(saved: Chat, shown: Chat) -> Chat:
    """The messages of both, those shown where they differ, unless another window has gone on with
    a reply; title and dates as saved.
    """
    messages = {m.id: m for m in shown.messages}
    messages |= {m.id: m for m in saved.messages if _longer(m, messages.get(m.id))}
    info = dataclasses.replace(saved.info, system=shown.info.system, leaf=shown.info.leaf)
    return Chat(info, tuple(messages[key] for key in sorted(messages)))
