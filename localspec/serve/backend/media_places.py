"""The places that pictures of requests are fetched from: those that the server was started for.

Nothing else is reached, whatever a client names: no other host or port, no file outside of the
folders, no link out of them, and nowhere that an answer redirects to.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path

from localspec.core.async_places import AsyncPlaces
from localspec.core.errors import MediaError, UsageError
from localspec.core.events import Message
from localspec.core.files import checked, paths
from localspec.core.picture import LARGEST_FILE, Picture
from localspec.core.reply_request import ReplyRequest
from localspec.core.safe_text import safe_line
from localspec.serve.requests.pictures import not_fetched

_SECONDS = 20.0
"""For one picture, from the request to its last byte."""
_IN_ALL = 60.0
"""For all pictures of a request: others wait for their turn."""
_AT_ONCE = 4
_PORTS = {"http": 80, "https": 443}
_STEP = 1 << 16
_TOO_LARGE = f"is larger than {LARGEST_FILE >> 20} MB, which is the most"

Grow = Callable[[int], None]
"""Is told how many bytes there are now; raises where that is too much."""


class MediaPlaces:
    """Web servers and folders, and the pictures that are there."""

    def __init__(self, places: Sequence[str] = ()) -> None:
        """``places`` are origins such as ``https://example.org``, and folders.

        Raises:
            UsageError: one is neither.
        """
        self._origins: set[tuple[str, str, int]] = set()
        self._folders: list[Path] = []
        for place in places:
            if "://" in place:
                self._origins.add(_lone_origin(place))
                continue
            folder = paths.expand(place).absolute()
            if not folder.is_dir():
                raise UsageError(f"--allow-media {place}: there is no such folder")
            self._folders.append(folder.resolve())
        self._turns = AsyncPlaces(_AT_ONCE, spare=1)

    async def fetched(self, caller: str, request: ReplyRequest, grow: Grow) -> ReplyRequest:
        """The request of a caller with the bytes of all its pictures.

        Raises:
            MediaError: one is in another place, or cannot be had; says which.
        """
        if not any(picture.address for one in request.messages for picture in one.pictures):
            return request
        total = 0

        def more(n_bytes: int) -> None:
            nonlocal total
            total += n_bytes
            grow(total)

        try:
            async with self._turns.of(caller), asyncio.timeout(_IN_ALL):
                messages = [await self._message(one, more) for one in request.messages]
        except TimeoutError:
            raise MediaError(
                f"the pictures of this request take longer than {_IN_ALL:.0f} s together"
            ) from None
        return dataclasses.replace(request, messages=tuple(messages))

    async def _message(self, message: Message, more: Grow) -> Message:
        pictures = [await self._picture(picture, more) for picture in message.pictures]
        return dataclasses.replace(message, pictures=tuple(pictures))

    async def _picture(self, picture: Picture, more: Grow) -> Picture:
        address = picture.address
        if not address:
            return picture
        name = safe_line(address)[:200]
        try:
            async with asyncio.timeout(_SECONDS):
                if address.lower().startswith("file:"):
                    path = self._allowed_path(address)
                    most = LARGEST_FILE + 1
                    data = await asyncio.to_thread(checked.content, path, most, links=False)
                    if len(data) > LARGEST_FILE:
                        raise MediaError(f"{name} {_TOO_LARGE}")
                    more(len(data))
                else:
                    data = await self._downloaded(address, more)
        except TimeoutError:
            raise MediaError(f"{name} takes longer than {_SECONDS:.0f} s") from None
        except OSError as error:
            raise MediaError(f"{name} cannot be read: {error.strerror or error}") from None
        if not data:
            raise MediaError(f"{name} is empty")
        return dataclasses.replace(picture, data=data, address="", name=name)

    def _allowed_path(self, address: str) -> Path:
        """The file of an address, without links.

        Raises:
            MediaError: it is in none of the folders.
            OSError: there is no such file.
        """
        if not self._folders:
            raise MediaError(not_fetched(address))
        parts = urllib.parse.urlsplit(address)
        name = urllib.parse.unquote(parts.path)
        if parts.netloc.lower() not in ("", "localhost") or "\0" in name:
            raise MediaError(f"{safe_line(address)[:200]} is no file of this machine")
        path = Path(os.path.realpath(name))  # whether there is one outside is not told
        if not any(path.is_relative_to(folder) for folder in self._folders):
            raise MediaError(
                f"{safe_line(name)[:200]} is in none of the folders that this server reads"
            )
        return path

    async def _downloaded(self, address: str, more: Grow) -> bytes:
        """The bytes at an address of one of the servers.

        Raises:
            MediaError: it is of another server, or the answer is no picture.
        """
        import httpx2

        try:
            url = httpx2.URL(address)
            origin = url.scheme, url.host.lower(), url.port or _PORTS[url.scheme]
        except (httpx2.InvalidURL, KeyError, ValueError):
            raise MediaError(not_fetched(address)) from None
        if origin not in self._origins or url.userinfo:
            raise MediaError(not_fetched(address))
        name, data = safe_line(address)[:200], bytearray()
        try:
            async with (
                httpx2.AsyncClient(timeout=_SECONDS, follow_redirects=False) as client,
                client.stream(
                    "GET", url, headers={"Accept": "image/*", "Accept-Encoding": "identity"}
                ) as response,
            ):
                if response.status_code != httpx2.codes.OK:
                    raise MediaError(f"{name} answers with status {response.status_code}")
                async for part in response.aiter_raw(_STEP):  # what is packed could be far larger
                    data += part
                    if len(data) > LARGEST_FILE:
                        raise MediaError(f"{name} {_TOO_LARGE}")
                    more(len(part))
        except httpx2.HTTPError as error:
            why = safe_line(str(error)) or type(error).__name__
            raise MediaError(f"{name} cannot be fetched: {why}") from None
        except (ImportError, ValueError, httpx2.InvalidURL):  # SOCKS without its package, or no URL
            raise MediaError(
                f"{name} cannot be fetched with the proxy settings of the server's environment"
            ) from None
        return bytes(data)


def _lone_origin(place: str) -> tuple[str, str, int]:
    """Scheme, host and port of an origin.

    Raises:
        UsageError: it is none, or has more than that.
    """
    parts = urllib.parse.urlsplit(place)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError):
        port = 0
    if not port or not parts.hostname or parts.username or parts.path.strip("/") or parts.query:
        raise UsageError(
            f"--allow-media takes a folder, or a server such as https://example.org, not {place!r}"
        )
    return parts.scheme, parts.hostname, port
