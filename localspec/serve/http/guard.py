"""Who may use the server: the Host and Origin headers and the API key of every request.

Without these checks any web page could use a server on 127.0.0.1: by its address, or by a name of
its own that it lets point there (DNS rebinding). Pure ASGI: nothing here buffers a stream.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localspec.serve.http.body_budget import STATE_KEY, Caller
from localspec.serve.http.errors import ApiError, ErrorShape
from localspec.serve.http.settings import ServeSettings

ShapeAt = Callable[[str], ErrorShape]
"""The shape of errors at a path."""
ANY = "*"
_OPEN_PATHS = frozenset({"/health", "/v1/health", "/livez", "/readyz"})
"""Answer without a key and by any name, as probes ask: they tell only whether it is ready."""
_HOST = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9_.-]{1,255}))(?::([0-9]{0,5}))?", re.ASCII)
"""A Host header, whole: an IPv6 address in brackets, or a name or other address; and a port."""
_TRACE = ("traceparent", "tracestate")
_REQUEST_ID = "x-request-id"
_ID = re.compile(r"[!-~]{1,128}", re.ASCII)
_METHODS = "GET, HEAD, POST, DELETE, OPTIONS"
_LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})


class Guard:
    """ASGI middleware that refuses who may not, and puts the caller into the scope."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, shape_at: ShapeAt) -> None:
        self._app = app
        self._settings = settings
        self._shape_at = shape_at
        self._names = _LOCAL_NAMES | _own_names() | {name.lower() for name in settings.hosts}
        self._origins = frozenset(origin.rstrip("/").lower() for origin in settings.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)  # of a repeated one, the first counts
        cors: dict[str, str] = {}
        named = _request_id(scope["path"], headers)
        try:
            _check_length(headers)
            if scope["path"] not in _OPEN_PATHS:
                self._check_host(headers)
            cors = self._check_origin(headers)
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await _preflight(headers, cors)(scope, receive, send)
                return
            traced = tuple((name, headers[name]) for name in _TRACE if name in headers)
            caller = self._caller(scope, headers)
            scope[STATE_KEY] = replace(caller, trace=traced) if traced else caller
        except ApiError as error:
            body = self._shape_at(scope["path"]).body(error)
            answer = JSONResponse(body, error.status, {**error.headers, **cors, **named})
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, _with_headers(send, cors | named))

    def _check_host(self, headers: Mapping[str, str]) -> None:
        """Refuse a name that is not this machine's.

        Raises:
            ApiError: 403, or 400 without a Host.
        """
        if self._settings.unix is not None or ANY in self._names:
            return  # no web page can open a Unix socket
        host = headers.get("host")
        if not host:
            raise ApiError(HTTPStatus.BAD_REQUEST, "the request has no Host header")
        name = _host_name(host)
        if name in self._names or _is_address(name):
            return
        raise ApiError(
            HTTPStatus.FORBIDDEN,
            "this server is not known by the name in the Host header; start it with --allow-host "
            "NAME if it should be",
            code="host_not_allowed",
        )

    def _check_origin(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers that let the page of an allowed origin read the answer.

        Raises:
            ApiError: 403 for any other page.
        """
        origin = headers.get("origin")
        if origin is None:
            return {}
        asked = origin.rstrip("/").lower()
        if asked in self._origins or ANY in self._origins:
            return {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Expose-Headers": f"{_REQUEST_ID}, retry-after",
                "Vary": "Origin",
            }
        host = headers.get("host", "").lower()
        if host and asked in {f"http://{host}", f"https://{host}"}:
            return {}
        raise ApiError(
            HTTPStatus.FORBIDDEN,
            "web pages of this origin may not use the server; start it with --cors-origin ORIGIN "
            "if they should",
            code="origin_not_allowed",
        )

    def _caller(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        """The holder of the key.

        Raises:
            ApiError: 401 without a key of ours where one is needed.
        """
        keys = self._settings.keys
        if not keys or scope["path"] in _OPEN_PATHS:
            return Caller()
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        key = bearer.strip() if scheme.lower() == "bearer" else ""
        key = key or headers.get("x-api-key", "") or headers.get("api-key", "")  # Azure's
        if not key:
            raise ApiError(
                HTTPStatus.UNAUTHORIZED,
                "this server needs an API key, in the header Authorization: Bearer KEY",
                code="missing_api_key",
            )
        owner = keys.owner(key)
        if owner is None:
            raise ApiError(
                HTTPStatus.UNAUTHORIZED, "this API key is not valid here", code="invalid_api_key"
            )
        return Caller(owner, keys.label(owner))


def _host_name(host: str) -> str:
    """The name of a Host header without the port, in lower case; "" where it is not valid."""
    found = _HOST.fullmatch(host.lower())
    if found is None or int(found[3] or 0) > 65535:
        return ""
    if found[1] is not None:
        return found[1] if ":" in found[1] else ""
    return found[2].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _check_length(headers: Mapping[str, str]) -> None:
    """Refuse a body with two lengths, of which a proxy may believe the other one.

    Raises:
        ApiError: 400, after which the connection is closed.
    """
    if "content-length" in headers and "transfer-encoding" in headers:
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            "the request has both Content-Length and Transfer-Encoding",
            headers={"Connection": "close"},
        )


def _request_id(path: str, headers: Mapping[str, str]) -> dict[str, str]:
    """The header that names this request: as the client did, or by a name of ours."""
    given = headers.get(_REQUEST_ID, "")
    name = given if _ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return {_REQUEST_ID: name, "request-id": name}  # the latter is Anthropic's
    return {_REQUEST_ID: name}


def _own_names() -> frozenset[str]:
    """The names of this machine, which only its own network can point elsewhere."""
    name = socket.gethostname().lower()
    return frozenset({name, f"{name}.local"}) if name else frozenset()


def _preflight(headers: Mapping[str, str], cors: Mapping[str, str]) -> Response:
    allowed = {
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Allow-Headers": headers.get("access-control-request-headers", "*"),
        "Access-Control-Max-Age": "600",
    }
    return Response(status_code=HTTPStatus.NO_CONTENT, headers={**cors, **allowed})


def _with_headers(send: Send, more: Mapping[str, str]) -> Send:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in more.items()]

    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *raw]}
        await send(message)

    return send_with
