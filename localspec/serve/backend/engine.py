"""The engine as the server uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from localspec.core.events import Examination, ModelInfo
from localspec.core.reply_request import ReplyRequest
from localspec.core.tokenized import Tokenized
from localspec.engine.reply import EngineReply
from localspec.errors import EngineError
from localspec.loading.options import Options


class Engine(Protocol):
    """One engine process: `localspec.engine.client.EngineClient`."""

    info: ModelInfo | None

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        ...

    async def open(self) -> ModelInfo:
        """Start it and load the model."""
        ...

    def reply(self, request: ReplyRequest) -> EngineReply:
        """Have a request answered."""
        ...

    async def tokenize(
        self, request: ReplyRequest, *, special: bool = True, bos: bool = True
    ) -> Tokenized:
        """Text and tokens of a request's prompt."""
        ...

    async def examine(
        self, request: ReplyRequest, tokens: Sequence[int], rival: int | None = None
    ) -> Examination:
        """Probabilities at the place of the last of ``tokens``."""
        ...

    async def adapter(self, path: Path, *, load: bool) -> None:
        """Load or unload an adapter, once no running reply uses it."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


class EngineFactory(Protocol):
    """Makes engines."""

    def engine(self, options: Options, on_death: Callable[[EngineError], None]) -> Engine:
        """An engine for a model, not started; it calls ``on_death`` when it dies."""
        ...
