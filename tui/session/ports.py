"""The engine as the interface sees it, and what replies are asked with."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.core.events import Examination, Loading, Message, ModelInfo, ReplyEvent
from localspec.core.sampling_params import Sampling
from localspec.errors import EngineError


class Answers(Protocol):
    """What a model that is loaded can be asked; see localspec.runtime.Runtime."""

    def reply(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        draft: bool = True,
    ) -> AsyncIterator[ReplyEvent]: ...

    async def examine(
        self,
        messages: Sequence[Message],
        tokens: Sequence[int],
        *,
        sampling: Sampling,
        seed: int,
        max_tokens: int | None = None,
        rival: int | None = None,
    ) -> Examination: ...

    def interrupt(self) -> None: ...


class Engine(Answers, Protocol):
    """What the interface needs of localspec.engine.client.EngineClient."""

    on_death: Callable[[EngineError], None] | None

    @property
    def pid(self) -> int | None: ...

    async def open(self, on_loading: Callable[[Loading], None] | None = None) -> ModelInfo: ...

    async def close(self) -> None: ...


class Phase(enum.Enum):
    """What the engine is doing."""

    LOADING = "loading"
    READY = "ready"
    REPLYING = "replying"
    DEAD = "dead"
    """It died, or did not come up; `Session.restart` starts it again."""


@dataclass(slots=True)
class Settings:
    """What a reply is asked with; the person changes it while chatting."""

    sampling: Sampling
    max_tokens: int | None = None
    seed: int | None = None
    draft: bool = True
