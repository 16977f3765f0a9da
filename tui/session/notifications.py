"""One-time events of a session, for the screen to show."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.errors import LocalspecError
from localspec.core.events import ModelInfo
from tui.session.conversation import ChatTurn


@dataclass(frozen=True, slots=True)
class ModelOpened:
    """The model is ready."""

    info: ModelInfo


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """A message left the queue and joined the conversation; its reply begins."""

    question: ChatTurn | None
    """None where an earlier question is answered again."""
    reply: ChatTurn


@dataclass(frozen=True, slots=True)
class ReplyEnded:
    """A reply is over, for whatever reason."""

    reply: ChatTurn


@dataclass(frozen=True, slots=True)
class CallsChanged:
    """A call of a reply was asked for, begins, or has a result."""

    reply: ChatTurn


@dataclass(frozen=True, slots=True)
class ConversationChanged:
    """Other turns must be shown: another chat, or another branch of it."""


@dataclass(frozen=True, slots=True)
class NoticeAdded:
    """A line for the user."""

    text: str
    error: bool = False


@dataclass(frozen=True, slots=True)
class ReplyFailed:
    """A reply failed; the engine lives."""

    error: LocalspecError


@dataclass(frozen=True, slots=True)
class EngineDied:
    """The engine ended, or its loading was stopped."""

    error: LocalspecError


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The engine could not load the model."""

    error: LocalspecError


Notification = (
    ModelOpened
    | ReplyStarted
    | ReplyEnded
    | CallsChanged
    | ConversationChanged
    | NoticeAdded
    | ReplyFailed
    | EngineDied
    | LoadFailed
)
