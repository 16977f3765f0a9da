"""What happens once, for the screen to show."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.events import ModelInfo
from localspec.errors import LocalspecError
from tui.session.conversation import Turn


@dataclass(frozen=True, slots=True)
class Opened:
    """The model is ready."""

    info: ModelInfo


@dataclass(frozen=True, slots=True)
class Asked:
    """A message left the queue and is now part of the conversation; its reply begins."""

    question: Turn | None
    """None where one that is there already is answered again."""
    reply: Turn


@dataclass(frozen=True, slots=True)
class Ended:
    """A reply is over, one way or another."""

    reply: Turn


@dataclass(frozen=True, slots=True)
class Turned:
    """The turns to show are others now: another chat, or another branch of it."""


@dataclass(frozen=True, slots=True)
class Told:
    """The engine has something to say."""

    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A reply failed; the engine lives."""

    error: LocalspecError


@dataclass(frozen=True, slots=True)
class Died:
    """The engine is gone, or its loading was stopped."""

    error: LocalspecError


@dataclass(frozen=True, slots=True)
class NotOpened:
    """The engine did not come up."""

    error: LocalspecError


Happening = Opened | Asked | Ended | Turned | Told | Failed | Died | NotOpened
