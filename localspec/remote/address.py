"""The address of a server, checked and split into its parts."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from localspec.core.errors import UsageError
from localspec.core.hosts import is_here
from localspec.core.safe_text import is_safe_name

_UNIX = "unix:"
_HOLDS_A_NAME = (
    "the address holds a name or a password; keys come from LOCALSPEC_API_KEY or from "
    "api_key_command in config.toml"
)
_EXAMPLE = "write it as http://127.0.0.1:8080/v1"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    root: str
    """Scheme, host and port without a slash at the end, as in ``http://127.0.0.1:8080``."""
    path: str
    """Path of the OpenAI interface without a slash at the end, usually ``/v1``."""
    socket: str | None = None
    """Path of a Unix socket, which is then used instead of host and port."""
    loopback: bool = False
    """Whether requests stay on this machine."""

    @property
    def base(self) -> str:
        """Address of the OpenAI interface."""
        return f"{self.root}{self.path}"

    @property
    def encrypted(self) -> bool:
        """Whether the connection cannot be read on its way."""
        return self.loopback or self.root.startswith("https:")

    def __str__(self) -> str:
        """The address as the user wrote it, for messages."""
        return f"{_UNIX}{self.socket}" if self.socket is not None else self.base


def parse(text: str, *, path: str = "/v1") -> Address:
    """The address in ``text``: http, https or ``unix:PATH``; without a path it gets ``path``.

    Raises:
        UsageError: it is no such address, or it holds a password.
    """
    text = text.strip()
    if text.startswith(_UNIX):
        socket = text.removeprefix(_UNIX)
        if not socket.startswith("/") or not is_safe_name(socket):
            raise UsageError("a Unix socket is written as unix:/PATH/OF/SOCKET")
        return Address("http://localhost", path, socket, loopback=True)
    if "://" not in text and text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        if "@" in text:  # a password with characters that belong to no address
            raise UsageError(_HOLDS_A_NAME) from None
        raise UsageError(f"this is not the address of a server: {text!r}; {_EXAMPLE}") from None
    _require(parts, text)
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    root = f"{parts.scheme.lower()}://{shown}" + (f":{port}" if port is not None else "")
    return Address(root, parts.path.rstrip("/") or path, loopback=is_here(host))


def split_path(server: str) -> str:
    """The path of an address; "" for that of a `localspec serve`, which is saved without."""
    return "" if server.startswith(_UNIX) else urlsplit(server).path


def _require(parts: SplitResult, text: str) -> None:
    """Refuse a text that is not an address, or has parts that do not belong there.

    Raises:
        UsageError: with the reason; a password is not repeated.
    """
    if parts.username is not None or parts.password is not None:
        raise UsageError(_HOLDS_A_NAME)
    plain = text.isascii() and text.isprintable() and " " not in text
    if parts.scheme.lower() not in {"http", "https"} or not parts.hostname or not plain:
        raise UsageError(f"this is not the address of a server: {text!r}; {_EXAMPLE}")
    if parts.query or parts.fragment:
        raise UsageError(f"an address has no ? and no #; {_EXAMPLE}")
