"""Commands to the engine process, and its messages; `localspec.engine.protocol` explains them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from localspec.core import errors
from localspec.core.errors import EngineError, LocalspecError
from localspec.core.events import Examination, Loading, ModelInfo, ReplyEvent
from localspec.core.reply_request import ReplyRequest, Tokenized


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


@dataclass(frozen=True, slots=True)
class OpenCommand:
    """Load a model."""

    type: ClassVar[str] = "open"
    options: dict[str, Any]
    """Checked by the engine against localspec.core.options.Options, so that a client needs not
    import the runtime."""


@dataclass(frozen=True, slots=True)
class ReplyCommand:
    """Answer a conversation."""

    type: ClassVar[str] = "reply"
    id: int
    request: ReplyRequest


@dataclass(frozen=True, slots=True)
class ExamineCommand:
    """Ask for the probabilities at one place of a reply."""

    type: ClassVar[str] = "examine"
    id: int
    request: ReplyRequest
    tokens: tuple[int, ...]
    rival: int | None = None


@dataclass(frozen=True, slots=True)
class TokenizeCommand:
    """Ask for the tokens of a request's prompt."""

    type: ClassVar[str] = "tokenize"
    id: int
    request: ReplyRequest
    special: bool = True
    bos: bool = True


@dataclass(frozen=True, slots=True)
class AdapterCommand:
    """Load an adapter of the target by a name, or unload it."""

    type: ClassVar[str] = "adapter"
    id: int
    name: str
    path: str | None
    """Its file; None to unload it."""


@dataclass(frozen=True, slots=True)
class InterruptCommand:
    """End a reply."""

    type: ClassVar[str] = "interrupt"
    id: int


@dataclass(frozen=True, slots=True)
class CloseCommand:
    """Unload and exit."""

    type: ClassVar[str] = "close"


Command = (
    OpenCommand
    | ReplyCommand
    | ExamineCommand
    | TokenizeCommand
    | AdapterCommand
    | InterruptCommand
    | CloseCommand
)
