"""A server that speaks OpenAI's interface, as a `localspec.engine.port.Engine`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from localspec.core.errors import RemoteError, UsageError
from localspec.core.events import Examination, Loading, ModelInfo
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling
from localspec.engine.port import OnLoading
from localspec.remote import request_body
from localspec.remote.address import Address
from localspec.remote.connection import Patience
from localspec.remote.dialects import UNKNOWN
from localspec.remote.faults import RetryableError, is_loading, refused
from localspec.remote.keys import Key
from localspec.remote.openai_reply import OpenAIReply
from localspec.remote.probe import Found, look
from localspec.remote.reply import RemoteReply, ServerClient
from localspec.remote.tally import Tally

_LOADING_SECONDS = 1.0
"""Between two looks at a server that is loading its model."""


class RemoteClient(ServerClient):
    """A server that speaks OpenAI's interface."""

    @property
    def server(self) -> str:
        """Address of the server."""
        return str(self.connection.address)

    def __init__(
        self,
        address: Address,
        key: Key,
        *,
        model: str | None = None,
        sampling: Sampling | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Ask nothing yet. ``model`` may be None where the server has only one; ``sampling`` are
        the settings that the user is told of where the server does not take them.
        """
        super().__init__(address, key, patience)
        self.found: Found | None = None
        self._wanted = model
        self._sampling = sampling or Sampling()
        self._left_out: set[str] = set()
        """Settings that the server refuses, and that are left out where they are the default."""

    @property
    def why_not_plain(self) -> str:
        """Why no reply can be made without drafting; "" where one can."""
        return request_body.why_not_plain(self.found.dialect) if self.found is not None else ""

    async def _connect(self, on_loading: OnLoading | None) -> ModelInfo:
        self.found = await self._look(on_loading)
        speculates = self.found.speculation.state == "on"
        self._left_out = set(self.found.dialect.never_drafting) if speculates else set()
        return self._info(self.found)

    async def _look(self, on_loading: OnLoading | None) -> Found:
        connection, address, attempt = self.connection, self.connection.address, 1
        while True:
            answer = await connection.get(f"{address.path}/models")
            if answer.status == 503 and is_loading(answer.json()):
                if on_loading is not None:
                    on_loading(Loading(str(address), 0.0))
                await asyncio.sleep(_LOADING_SECONDS)
                attempt = 1
                continue
            found = refused(address, answer.status, answer.headers, answer.body, connection.key)
            if answer.status == 200 or not isinstance(found, RetryableError):
                return await look(connection, self._wanted)
            await asyncio.sleep(connection.pause(found, attempt))
            attempt += 1

    def _info(self, found: Found) -> ModelInfo:
        address = self.connection.address
        notices = []
        if self.connection.key and not address.encrypted:
            notices.append(f"the key travels to {address} unencrypted; use https, or a tunnel")
        unsent = request_body.not_sent(self._sampling, found.dialect)
        if unsent:
            them = ", ".join(unsent)
            notices.append(f"{found.dialect.name} is not sent {them}: it may not take them")
        spare = request_body.spare(self._sampling, found.dialect).values()
        for name in sorted(self._left_out & set(spare)):
            value = getattr(self._sampling, name)
            notices.append(
                f"{found.dialect.name} takes no {name} while it speculates: "
                f"the default of {value:g} is left out"
            )
        return ModelInfo(
            target=found.model,
            draft=None,
            backend="server" if found.dialect is UNKNOWN else found.dialect.name,
            context=found.context,
            name=found.model,
            target_bytes=0,
            draft_bytes=0,
            threads=0,
            speculation=found.speculation,
            notices=tuple(notices),
            parallel=found.parallel,
            switches_thinking=None if found.dialect.thinking else False,
        )

    def reply(self, request: ReplyRequest) -> RemoteReply:
        """Have a request answered; several may be answered at the same time.

        Raises:
            UsageError: the server cannot do what is asked for.
            RemoteError: `open` was not called.
        """
        if self.found is None:
            raise RemoteError("the server is not connected")
        found, address = self.found, self.connection.address
        seed = request_body.draw_seed() if request.seed is None else request.seed
        body = request_body.body(request, found.model, found.dialect, seed, self._left_out)
        path = "/completions" if "messages" not in body else "/chat/completions"
        source = OpenAIReply(
            self.connection,
            address.path + path,
            body,
            Tally(seed, found.speculation, first_untimed=found.dialect.first_untimed),
            seen=request.messages if request.sees else (),
            counters=found.counters,
            spare=request_body.spare(request.sampling, found.dialect),
            on_left_out=self._left_out.update,
        )
        return self._begin(source)

    async def examine(
        self, request: ReplyRequest, tokens: Sequence[int], rival: int | None = None
    ) -> Examination:
        """Not to be had from a remote engine.

        Raises:
            UsageError: always.
        """
        del request, tokens, rival
        name = self.found.dialect.name if self.found is not None else "this server"
        raise UsageError(f"{name} does not tell the candidates of a token")

    async def close(self) -> None:
        """See `ServerClient.close`."""
        self.found = None
        await super().close()
