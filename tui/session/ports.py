"""The engine as the interface sees it, and the settings of replies."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from localspec.core.events import Examination, Loading, Message, ModelInfo, ReplyEvent
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling
from localspec.errors import EngineError

if TYPE_CHECKING:
    from localspec.tools.toolbox import RequestTools

LARGEST_SEED = (1 << 64) - 1


class ReplyHandle(Protocol):
    """The events of one reply."""

    def __aiter__(self) -> AsyncIterator[ReplyEvent]: ...

    def interrupt(self) -> None:
        """End the reply now; it still ends with Finished."""
        ...

    def close(self) -> None:
        """Stop reading; a reply that is still being made is interrupted."""
        ...


class ReplyPort(Protocol):
    """Requests to a loaded model, several at the same time; see localspec.runtime.Runtime."""

    def reply(self, request: ReplyRequest) -> ReplyHandle: ...

    async def examine(
        self, request: ReplyRequest, tokens: Sequence[int], rival: int | None = None
    ) -> Examination: ...


class EnginePort(ReplyPort, Protocol):
    """The part of `localspec.engine.client.EngineClient` that the interface uses."""

    on_death: Callable[[EngineError], None] | None

    @property
    def server(self) -> str:
        """Address of the server that answers; "" for an engine of our own."""
        ...

    @property
    def why_not_plain(self) -> str:
        """Why no reply can be made without drafting; "" where one can."""
        ...

    @property
    def pid(self) -> int | None: ...

    async def open(self, on_loading: Callable[[Loading], None] | None = None) -> ModelInfo: ...

    async def close(self) -> None: ...


class Phase(enum.Enum):
    """The state of the engine."""

    LOADING = "loading"
    READY = "ready"
    REPLYING = "replying"
    DEAD = "dead"
    """It ended, or could not load; `Session.restart` starts it again."""


@dataclass(slots=True)
class Settings:
    """Settings of the next replies; the user changes them while chatting."""

    sampling: Sampling
    max_tokens: int | None = None
    seed: int | None = None
    draft: bool = True
    grammar: GrammarSpec | None = None
    """The grammar of the next replies; None: any text."""
    grammar_name: str = ""
    """The name that the user gave it by."""

    thinking: bool | None = None
    """Whether the next replies begin with thinking; None: as the model's template does."""

    @property
    def invitation(self) -> str:
        """The text of the empty composer."""
        return "Message" if self.grammar is None else f"Message; replies fit {self.grammar_name}"

    def request(
        self,
        messages: tuple[Message, ...],
        variant: int = 0,
        tools: RequestTools | None = None,
    ) -> ReplyRequest:
        """A request for the next reply of a conversation; a fixed seed is increased by the number
        of the variant.
        """
        return ReplyRequest(
            messages=messages,
            sampling=self.sampling,
            seed=None if self.seed is None else min(self.seed + variant, LARGEST_SEED),
            max_tokens=self.max_tokens,
            draft=self.draft,
            grammar=self.grammar if tools is None else tools.grammar,
            thinking=self.thinking,
            tools=None if tools is None else tools.text,
            markers=tools is not None,
            draft_memory=True,
        )
