"""Paths as clients mean them: base addresses are written with and without a slash at the end, and
some clients add their path to either.
"""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

_SLASHES = re.compile("//+")
_ABSOLUTE = re.compile("https?://([^/]*)", re.IGNORECASE)


class PlainPaths:
    """ASGI middleware that leaves out repeated slashes and one at the end, and the scheme and host
    that clients of proxies put before a path.
    """

    def __init__(self, app: ASGIApp, root: str = "") -> None:
        """``root`` is a path in front of all others, which is left out too where it is there."""
        self._app = app
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request at its plain path."""
        if scope["type"] == "http":
            whole = _ABSOLUTE.match(scope["path"])
            if whole is not None:  # its host takes the place of the header's (RFC 9112, 3.2.2)
                others = [header for header in scope["headers"] if header[0].lower() != b"host"]
                host = whole[1].encode("latin-1", "replace")
                scope["headers"] = [*others, (b"host", host)]
                scope["path"] = scope["path"][whole.end() :] or "/"
            path = plain(scope["path"])
            if self._root and (path + "/").startswith(self._root + "/"):
                path = path[len(self._root) :] or "/"
            scope["path"] = path
        await self._app(scope, receive, send)


def plain(path: str) -> str:
    """A path without needless slashes."""
    return _SLASHES.sub("/", path).rstrip("/") or "/"


def hint(path: str) -> str:
    """A hint at what is wrong with the base address of a client that asks for an unknown path;
    empty where nothing is known.
    """
    version, _, rest = path.removeprefix("/").partition("/")
    if version == "v1" and rest.split("/")[0] == "v1":
        return "; the base URL of this client should end before /v1"
    return ""
