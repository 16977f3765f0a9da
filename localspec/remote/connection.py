"""HTTP requests to one server, with limits, patience and another attempt where that is safe."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from localspec import __version__
from localspec.core import json_text
from localspec.core.errors import RemoteError
from localspec.remote.address import Address
from localspec.remote.faults import RetryableError, excerpt, may_pass, refused, unreachable
from localspec.remote.keys import Key

_LARGEST_ANSWER = 4 << 20
"""Bytes of an answer that is read whole: lists of models, figures of a server, errors."""
_BEGINNING = 60
"""Characters of an answer that is something else."""
_CONNECTIONS = 64
_SPREAD = 1.25
"""By up to so much a pause is longer, so that clients do not all ask again at once."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds."""

    connect: float = 10.0
    question: float = 10.0
    """Most seconds for the whole answer to a small question."""
    first: float = 600.0
    """Most seconds until the first sign of a reply: a processor may read a prompt for minutes."""
    later: float = 120.0
    """Most seconds until each further one."""
    attempts: int = 5
    pause: float = 0.5
    """Seconds before the second attempt; doubled before each further one."""
    longest_pause: float = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Its content; None where it is not JSON."""
        try:
            return json.loads(self.body, parse_constant=json_text.finite)
        except (ValueError, RecursionError):
            return None


class Connection:
    """Requests to one server. Redirects are not followed: the key would go with them."""

    def __init__(self, address: Address, key: Key, patience: Patience | None = None) -> None:
        """Nothing is sent yet."""
        self.address, self.key = address, key
        self.patience = patience or Patience()
        self._client: httpx2.AsyncClient | None = None

    def _opened(self) -> httpx2.AsyncClient:
        if self._client is None:
            try:
                self._client = self._made()
            except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
                # A SOCKS proxy without its package, a proxy that is no address, no certificates.
                raise RemoteError(
                    f"{self.address} cannot be asked with the proxy and certificate settings of "
                    f"the environment: {excerpt(str(error), self.key)}"
                ) from None
        return self._client

    def _made(self) -> httpx2.AsyncClient:
        transport = None
        if self.address.socket is not None:
            transport = httpx2.AsyncHTTPTransport(uds=self.address.socket)
        return httpx2.AsyncClient(
            transport=transport,
            follow_redirects=False,
            # Reading the certificates of the system takes a tenth of a second.
            verify=self.address.root.startswith("https:"),
            # A proxy for the network is none for this machine.
            trust_env=not self.address.loopback,
            timeout=httpx2.Timeout(None, connect=self.patience.connect),
            limits=httpx2.Limits(max_connections=_CONNECTIONS),
            headers={
                "User-Agent": f"localspec/{__version__}",
                # Streams are read as they arrive, and an answer cannot unfold beyond its limit.
                "Accept-Encoding": "identity",
            },
        )

    async def close(self) -> None:
        """Close all connections; a later request opens others."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def get(self, path: str) -> Answer:
        """The answer at a path below the root, whatever its status.

        Raises:
            RemoteError: there is none, or it is too large.
        """
        return await self._short(path)

    async def ask(
        self, path: str, body: dict[str, Any] | None = None, *, seconds: float | None = None
    ) -> Any:
        """The JSON that a small question is answered with; a POST with a ``body``. ``seconds`` is
        how long to wait, where that is longer than usual.

        Raises:
            LocalspecError: there is no such answer.
        """
        answer = await self._short(path, body, seconds)
        if answer.status != 200:
            found = refused(self.address, answer.status, answer.headers, answer.body, self.key)
            raise found.error if isinstance(found, RetryableError) else found
        data = answer.json()
        if data is None:
            begins = excerpt(answer.body, self.key, _BEGINNING)
            raise RemoteError(
                f"{self.address}{path} answers with {begins!r}, not with JSON; is the address "
                "right? it usually ends in /v1"
            )
        return data

    async def _short(
        self, path: str, body: dict[str, Any] | None = None, seconds: float | None = None
    ) -> Answer:
        method = "GET" if body is None else "POST"
        limit = max(self.patience.question, seconds or 0)
        try:
            async with (
                asyncio.timeout(limit),
                self._opened().stream(
                    method, f"{self.address.root}{path}", headers=self.key.headers, json=body
                ) as response,
            ):
                whole = await _whole(response, self.address)
                return Answer(response.status_code, response.headers, whole)
        except TimeoutError:
            raise RemoteError(f"{self.address} does not answer within {limit:.0f} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise unreachable(self.address, error, self.key) from None

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, body: bytes, waiting: Callable[[str], None]
    ) -> AsyncIterator[httpx2.Response]:
        """The answer to a request, as soon as its headers are here; its status is 200.

        The request is sent again while nothing of an answer has arrived and a later attempt may
        succeed; ``waiting`` is told why, once for each cause. Once an answer has begun it is never
        sent again.

        Raises:
            LocalspecError: no attempt was answered with a success.
        """
        async with contextlib.AsyncExitStack() as stack:
            attempt, told = 1, set[str]()
            while True:
                try:
                    yield await stack.enter_async_context(self._attempt(path, body))
                except RetryableError as refusal:
                    pause = self.pause(refusal, attempt)
                    if (cause := str(refusal.error)) not in told or refusal.after is not None:
                        waiting(f"{cause}; asking again {self._how_long(refusal, attempt, pause)}")
                        told.add(cause)
                    await asyncio.sleep(pause)
                    attempt += 1
                else:
                    return

    def pause(self, refusal: RetryableError, attempt: int) -> float:
        """Seconds until the next attempt.

        Raises:
            LocalspecError: there is none.
        """
        patience = self.patience
        pause: float = patience.pause * 2 ** (attempt - 1) * random.uniform(1, _SPREAD)
        if refusal.after is not None:
            pause = max(pause, refusal.after)
        if attempt >= patience.attempts or pause > patience.longest_pause:
            raise refusal.error from None
        return pause

    def _how_long(self, refusal: RetryableError, attempt: int, pause: float) -> str:
        if refusal.after is not None:
            return f"in {pause:.1f} s"
        pauses = (2 ** (n - 1) for n in range(attempt, self.patience.attempts))
        return f"for up to {math.ceil(_SPREAD * self.patience.pause * sum(pauses))} s"

    @contextlib.asynccontextmanager
    async def _attempt(self, path: str, body: bytes) -> AsyncIterator[httpx2.Response]:
        """One attempt.

        Raises:
            RetryableError: nothing of an answer arrived.
            LocalspecError: the answer is an error.
        """
        request = self._opened().build_request(
            "POST",
            f"{self.address.root}{path}",
            content=body,
            headers={"Content-Type": "application/json", **self.key.headers},
        )
        try:
            async with asyncio.timeout(self.patience.first):
                response = await self._opened().send(request, stream=True)
        except TimeoutError:
            raise RemoteError(
                f"{self.address} has not answered for {self.patience.first:.0f} s; is it still "
                "running?"
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            found = unreachable(self.address, error, self.key)
            if may_pass(error):
                raise RetryableError(found) from None
            raise found from None
        try:
            await self._require_success(response)
            yield response
        finally:
            await response.aclose()

    async def _require_success(self, response: httpx2.Response) -> None:
        if response.status_code == 200:
            coding = response.headers.get("Content-Encoding", "identity")
            if coding.lower() != "identity":
                how = excerpt(coding, self.key)
                raise RemoteError(f"{self.address} sends a reply compressed ({how})")
            return
        try:
            async with asyncio.timeout(self.patience.question):
                body = await _whole(response, self.address)
        except (TimeoutError, httpx2.HTTPError, RemoteError):
            body = b""  # the status says enough
        raise refused(self.address, response.status_code, response.headers, body, self.key)


async def _whole(response: httpx2.Response, address: Address) -> bytes:
    """The body of a small answer.

    Raises:
        RemoteError: it is too large.
    """
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > _LARGEST_ANSWER:
            raise RemoteError(
                f"{address} answered a small question with more than {_LARGEST_ANSWER >> 20} MB"
            )
    return bytes(body)
