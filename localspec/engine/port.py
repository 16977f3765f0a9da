"""An engine as everybody who uses one sees it: the chat, the server and the shell."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from localspec.core.errors import EngineError
from localspec.core.events import Examination, Loading, ModelInfo, ReplyEvent
from localspec.core.reply_request import ReplyRequest, Tokenized
from localspec.engine.reply import EngineReply

if TYPE_CHECKING:
    from localspec.core.options import Options

OnLoading = Callable[[Loading], None]


class ReplyHandle(Protocol):
    """The events of one reply."""

    def __aiter__(self) -> AsyncIterator[ReplyEvent]: ...

    def interrupt(self) -> None:
        """End the reply now; it still ends with Finished."""
        ...

    def close(self) -> None:
        """Stop reading; a reply that is still being made is interrupted."""
        ...


class Engine(Protocol):
    """An engine: `localspec.engine.client.EngineClient`, or a server elsewhere
    (`localspec.remote.reply.ServerClient`). All methods belong to one asyncio loop.
    """

    info: ModelInfo | None
    """The loaded model; None while none is."""
    on_death: Callable[[EngineError], None] | None
    """Called when it ends without having been asked to."""

    @property
    def server(self) -> str:
        """Address of the server that answers; "" for an engine of our own."""
        ...

    @property
    def why_not_plain(self) -> str:
        """Why no reply can be made without drafting; "" where one can."""
        ...

    @property
    def pid(self) -> int | None:
        """The engine's process; None without one."""
        ...

    async def open(self, on_loading: OnLoading | None = None) -> ModelInfo:
        """Start it, or reach it, and wait until its model is loaded."""
        ...

    def reply(self, request: ReplyRequest) -> ReplyHandle:
        """Have a request answered; several may be answered at the same time."""
        ...

    async def examine(
        self, request: ReplyRequest, tokens: Sequence[int], rival: int | None = None
    ) -> Examination:
        """Probabilities at the place of the last of ``tokens``."""
        ...

    async def close(self) -> None:
        """End it; while `open` waits, this cancels that."""
        ...


class OwnEngine(Engine, Protocol):
    """An engine process of our own: `localspec.engine.client.EngineClient`."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        ...

    def reply(self, request: ReplyRequest) -> EngineReply:
        """Have a request answered."""
        ...

    async def tokenize(
        self, request: ReplyRequest, *, special: bool = True, bos: bool = True
    ) -> Tokenized:
        """Text and tokens of a request's prompt."""
        ...

    async def adapter(self, name: str, path: Path | None) -> None:
        """Load an adapter for requests to come, which call it by the name; None unloads it."""
        ...


class EngineFactory(Protocol):
    """Makes engines."""

    def engine(self, options: Options, on_death: Callable[[EngineError], None]) -> OwnEngine:
        """An engine for a model, not started; it calls ``on_death`` when it dies."""
        ...
