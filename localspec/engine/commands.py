"""What the interface asks of the engine; `localspec.engine.protocol` tells what each means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from localspec.core.events import Message
from localspec.core.sampling_params import Sampling


@dataclass(frozen=True, slots=True)
class OpenCommand:
    """Load a model."""

    type: ClassVar[str] = "open"
    options: dict[str, Any]
    """Checked by the engine against localspec.loading.options.Options, so that a client needs not
    import the runtime."""


@dataclass(frozen=True, slots=True)
class ReplyCommand:
    """Answer a conversation."""

    type: ClassVar[str] = "reply"
    id: int
    messages: tuple[Message, ...]
    sampling: Sampling
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    draft: bool = True


@dataclass(frozen=True, slots=True)
class ExamineCommand:
    """Look at one place of a reply again."""

    type: ClassVar[str] = "examine"
    id: int
    messages: tuple[Message, ...]
    tokens: tuple[int, ...]
    sampling: Sampling
    seed: int
    max_tokens: int | None = None
    rival: int | None = None


@dataclass(frozen=True, slots=True)
class InterruptCommand:
    """End a reply."""

    type: ClassVar[str] = "interrupt"
    id: int


@dataclass(frozen=True, slots=True)
class CloseCommand:
    """Unload and exit."""

    type: ClassVar[str] = "close"


Command = OpenCommand | ReplyCommand | ExamineCommand | InterruptCommand | CloseCommand
