"""Faults of a server elsewhere, each in one sentence for the user."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import httpx2

from localspec.core.errors import (
    AccessError,
    LocalspecError,
    ModelNotFoundError,
    NotServedError,
    RemoteError,
    ThinkingSwitchError,
    UsageError,
)
from localspec.core.safe_text import safe_line
from localspec.remote.address import Address
from localspec.remote.keys import OWN, Key

_LONGEST = 200
"""Characters of a text of the server that a message repeats."""
_READ = 1 << 14
"""Characters of it that are looked at."""
_ABSENT = frozenset({404, 405, 410})
_BUSY = frozenset({429, 502, 503, 504})
"""Answers that may be others a moment later."""


def excerpt(text: str | bytes, key: Key, most: int = _LONGEST) -> str:
    """A text of the server, harmless, without our key, and cut after ``most`` characters."""
    begins = text[:_READ]
    shown = begins.decode("utf-8", "replace") if isinstance(begins, bytes) else begins
    line = " ".join(safe_line(key.hidden(shown)).split())  # before it is cut: half a key is one
    return line if len(line) <= most else f"{line[:most]}…"


class RetryableError(Exception):
    """Nothing of the answer has arrived, and a later attempt may succeed."""

    def __init__(self, error: LocalspecError, after: float | None = None) -> None:
        """``after`` is the number of seconds that the server asks to wait."""
        super().__init__(str(error))
        self.error = error
        self.after = after


def unreachable(address: Address, error: Exception, key: Key) -> RemoteError:
    """Why a request could not be sent, or its answer not be read."""
    text = excerpt(str(error), key) or type(error).__name__
    said = f"the connection to {address} broke: {text}"
    if isinstance(error, httpx2.ConnectTimeout):
        said = f"{address} does not answer; check the address and the network"
    elif isinstance(error, httpx2.ConnectError):
        said = f"{address} cannot be reached: {text}"
    for cause in _causes(error):
        match cause:
            case ssl.SSLError():
                reason = getattr(cause, "verify_message", "") or cause.reason or "it is not valid"
                said = f"the certificate of {address} is refused: {excerpt(reason, key)}"
            case socket.gaierror():
                said = f"no host has the name in {address}"
            case ConnectionRefusedError():
                said = f"no server listens at {address}; start it, or check the port"
            case FileNotFoundError():
                said = f"there is no socket at {address}; is the server running?"
    return RemoteError(said)


def broken_off(address: Address, *, begun: bool) -> RemoteError:
    """A reply ended without its last event; ``begun`` is whether any text had come."""
    kept = "what had arrived is kept" if begun else "nothing of it had arrived"
    return RemoteError(f"{address} broke the reply off in the middle; {kept}")


def may_pass(error: Exception) -> bool:
    """Whether a request failed before any of its answer arrived, for a reason that may pass."""
    if any(isinstance(cause, ssl.SSLError | socket.gaierror) for cause in _causes(error)):
        return False
    # A connection that was kept open may be closed just when it is used again.
    silent = isinstance(error, httpx2.RemoteProtocolError) and "without sending" in str(error)
    return silent or isinstance(error, httpx2.NetworkError | httpx2.ConnectTimeout)


def _causes(error: BaseException) -> list[BaseException]:
    """The error, its causes, and those of a group."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(found) < 20:
        one = waiting.pop()
        if one is None or one in found:
            continue
        found.append(one)
        waiting += [one.__cause__, one.__context__]
        waiting += getattr(one, "exceptions", ())
    return found


def refused(
    address: Address, status: int, headers: Mapping[str, str], body: bytes, key: Key
) -> LocalspecError | RetryableError:
    """The error of an answer that is not a success."""
    data = _data(body)
    said = excerpt(message_in(data), key)
    tail = f": {said}" if said else ""
    if status == 401:
        advice = "the key is refused" if key else f"set {OWN}, or api_key_command in config.toml"
        return AccessError(f"{address} requires a key ({advice}){tail}")
    if status in {403, 407}:
        return AccessError(f"{address} forbids this request ({status}){tail}")
    if status in _ABSENT and "model" in said.lower():
        return ModelNotFoundError(f"{address} does not have this model{tail}")
    if status in _BUSY:
        error = RemoteError(f"{address} cannot answer now ({status}){tail}")
        return RetryableError(error, _seconds(headers.get("Retry-After")))
    if 400 <= status < 500 and status not in _ABSENT:
        unswitched = _code(data) == ThinkingSwitchError.code
        refusal = ThinkingSwitchError if unswitched else UsageError
        return refusal(f"{address} refuses this request ({status}){tail}")
    what, kind = f"failed ({status})", RemoteError
    if status in _ABSENT:
        what = (
            f"does not know this request ({status}); is the address right? it usually ends in /v1"
        )
        kind = NotServedError
    elif 300 <= status < 400:
        to = excerpt(headers.get("Location", ""), key)
        what = "sends requests on, and does not say where to"
        if to:
            what = f"sends requests on to {to}; give that address, if it is right"
    return kind(f"{address} {what}{tail}")


def _seconds(text: str | None) -> float | None:
    """The value of Retry-After in seconds; a date is not used."""
    return (
        min(float(text), 1e6) if text is not None and text.isascii() and text.isdecimal() else None
    )


def _data(body: bytes) -> Any:
    """The JSON of a body, or its text; "" for a web page."""
    text = body.decode("utf-8", "replace").strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return "" if text.startswith("<") else text


def is_loading(data: Any) -> bool:
    """Whether the content of an answer is an error that says that the model is being loaded, as of
    llama-server (``Loading model``) and of ours (``loading`` as its code). A proxy says other
    things with the same status.
    """
    error = data.get("error") if isinstance(data, dict) else None
    return _code(data) == "loading" or "loading" in message_in(error).lower()


def _code(data: Any) -> Any:
    error = data.get("error") if isinstance(data, dict) else None
    return error.get("code") if isinstance(error, dict) else None


def message_in(data: Any) -> str:
    """The message of an error object; "" without one."""
    if isinstance(data, str):
        return data
    if isinstance(data, list) and data:
        return message_in(data[0])
    if isinstance(data, dict):
        for name in ("error", "message", "detail", "msg"):
            if data.get(name):
                return message_in(data[name])
    return ""
