"""Messages of the engine process; `localspec.engine.protocol` says when each is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from localspec.core import errors
from localspec.core.errors import EngineError, LocalspecError
from localspec.core.events import Examination, Loading, ModelInfo, ReplyEvent
from localspec.core.reply_request import Tokenized


@dataclass(frozen=True, slots=True)
class HelloEvent:
    """The first line."""

    type: ClassVar[str] = "hello"
    version: int
    pid: int


@dataclass(frozen=True, slots=True)
class LoadingEvent:
    """A model file is being loaded."""

    type: ClassVar[str] = "loading"
    progress: Loading


@dataclass(frozen=True, slots=True)
class OpenedEvent:
    """The model is ready."""

    type: ClassVar[str] = "opened"
    info: ModelInfo


@dataclass(frozen=True, slots=True)
class ReplyEvents:
    """Events of one reply, in their order."""

    type: ClassVar[str] = "events"
    id: int
    events: tuple[ReplyEvent, ...]
    """At least one."""


@dataclass(frozen=True, slots=True)
class ExaminedEvent:
    """The probabilities at one place of a reply."""

    type: ClassVar[str] = "examined"
    id: int
    examination: Examination


@dataclass(frozen=True, slots=True)
class TokenizedEvent:
    """The tokens of a request's prompt."""

    type: ClassVar[str] = "tokenized"
    id: int
    tokenized: Tokenized


@dataclass(frozen=True, slots=True)
class AdaptedEvent:
    """An adapter was loaded or unloaded."""

    type: ClassVar[str] = "adapted"
    id: int


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """A command failed."""

    type: ClassVar[str] = "failed"
    id: int | None
    error: str
    message: str
    exit_code: int

    @classmethod
    def of(cls, id: int | None, error: LocalspecError) -> FailedEvent:  # noqa: A002 - the field
        """The event that reports ``error``."""
        return cls(id, type(error).__name__, str(error), error.exit_code)

    def exception(self) -> LocalspecError:
        """The error as an exception: of its class in `localspec.core.errors`, or EngineError."""
        kind = getattr(errors, self.error, None)
        if not (isinstance(kind, type) and issubclass(kind, LocalspecError)):
            kind = EngineError
        error = kind(self.message)
        error.exit_code = self.exit_code
        return error


EngineEvent = (
    HelloEvent
    | LoadingEvent
    | OpenedEvent
    | ReplyEvents
    | ExaminedEvent
    | TokenizedEvent
    | AdaptedEvent
    | FailedEvent
)
