"""What the engine process tells; `localspec.engine.protocol` says when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from localspec import errors
from localspec.core.events import Examination, ModelInfo, Reply, Round, Token
from localspec.errors import EngineError, LocalspecError


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
    name: str
    fraction: float


@dataclass(frozen=True, slots=True)
class OpenedEvent:
    """The model is ready."""

    type: ClassVar[str] = "opened"
    info: ModelInfo


@dataclass(frozen=True, slots=True)
class ReadingEvent:
    """The prompt is being read."""

    type: ClassVar[str] = "reading"
    id: int
    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class BatchEvent:
    """Tokens and rounds in the order they happened."""

    type: ClassVar[str] = "batch"
    id: int
    items: tuple[Token | Round, ...]


@dataclass(frozen=True, slots=True)
class NoticeEvent:
    """One line that the person should know."""

    type: ClassVar[str] = "notice"
    id: int
    text: str


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """The whole reply."""

    type: ClassVar[str] = "finished"
    id: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class ExaminedEvent:
    """What stood behind a token."""

    type: ClassVar[str] = "examined"
    id: int
    examination: Examination


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
        """The error again, of its own class where that is one of ours."""
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
    | ReadingEvent
    | BatchEvent
    | NoticeEvent
    | FinishedEvent
    | ExaminedEvent
    | FailedEvent
)
