"""The interface of `localspec.engine.client.EngineClient`, as far as all servers share it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from localspec.core.errors import EngineError, Interrupted, LocalspecError
from localspec.core.events import ModelInfo
from localspec.engine.port import Engine, OnLoading
from localspec.remote.address import Address
from localspec.remote.connection import Connection, Patience
from localspec.remote.keys import Key
from localspec.remote.reply import RemoteReply, ReplySource


class ServerClient(Engine, ABC):
    """An engine behind HTTP. All methods belong to one asyncio loop."""

    pid: int | None = None
    """The process is the server's."""

    def __init__(self, address: Address, key: Key, patience: Patience | None = None) -> None:
        """Ask nothing yet."""
        self.connection = Connection(address, key, patience)
        self.on_death: Callable[[EngineError], None] | None = None
        self.info: ModelInfo | None = None
        self._opening: asyncio.Task[ModelInfo] | None = None
        self._replies: set[RemoteReply] = set()

    async def open(self, on_loading: OnLoading | None = None) -> ModelInfo:
        """Find out what the server is; waits while it loads its model.

        Raises:
            LocalspecError: it does not answer, refuses, does not have the model, or is of another
                kind.
            Interrupted: `close` was called meanwhile.
        """
        await self.close()
        self._opening = asyncio.create_task(self._connect(on_loading), name="connecting")
        try:
            self.info = await self._opening
        except LocalspecError:
            await self.connection.close()
            raise
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                self._opening.cancel()
                raise
            await self.connection.close()
            raise Interrupted("connecting was stopped") from None
        finally:
            self._opening = None
        return self.info

    @abstractmethod
    async def _connect(self, on_loading: OnLoading | None) -> ModelInfo:
        """Ask the server what it is, until its model is loaded.

        Raises:
            LocalspecError: see `open`.
        """

    def _begin(self, source: ReplySource) -> RemoteReply:
        """A reply that `interrupt` and `close` end."""
        reply = RemoteReply(source)
        self._replies.add(reply)
        reply.when_over(self._replies.discard)
        return reply

    def interrupt(self) -> None:
        """End every reply; each still ends with Finished."""
        for reply in [*self._replies]:
            reply.interrupt()

    async def close(self) -> None:
        """End all replies and connections; while `open` waits, this cancels it."""
        if self._opening is not None:
            self._opening.cancel()
        self.interrupt()
        self.info = None
        await self.connection.close()
