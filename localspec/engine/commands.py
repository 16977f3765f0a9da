"""Commands to the engine; `localspec.engine.protocol` says what each means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from localspec.core.reply_request import ReplyRequest


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
    """Load or unload an adapter of the target."""

    type: ClassVar[str] = "adapter"
    id: int
    path: str
    load: bool


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
