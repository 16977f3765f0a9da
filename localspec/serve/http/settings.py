"""The settings of the server, and which addresses others can reach."""

from __future__ import annotations

import hashlib
import ipaddress
import socket
from dataclasses import dataclass, field
from pathlib import Path

from localspec.core.errors import UsageError
from localspec.core.sampling_params import Sampling

DEFAULT_PORT = 8080
_ANY = 1 << 40
"""More tokens than any context has."""
_SHORTEST_KEY = 8
"""Characters of an API key at least: a shorter one is guessed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on clients, so that one of them cannot exhaust the server."""

    body_bytes: int = 8 << 20
    choices: int = 16
    """``n``."""
    prompts: int = 128
    """Prompts of one /v1/completions request."""
    waiting: int = 128
    """Requests that wait for the engine; further ones get status 429."""
    connections: int = 1024
    connections_of_one: int = 768
    """Connections of one address (of IPv6: of one network of 64 bits), so that others find room."""
    bodies_bytes: int = 64 << 20
    """Bytes of all bodies together, from their arrival to the end of their answers; the first 64 KB
    of each are not counted."""
    answers_bytes: int = 256 << 20
    """Bytes of all answers together, of the events that they are made of and of the prompts that
    they repeat, until their clients have read them; those of up to 64 KB are not counted, and of a
    stream what is made and not read, and what its end repeats, beyond so much."""
    header_seconds: float = 15.0
    """Most seconds from the connection, or a request's first byte, to the end of its headers."""
    body_seconds: float = 60.0
    idle_seconds: float = 30.0
    """Between two requests on a connection."""
    write_seconds: float = 60.0
    """Seconds for which a client may leave its buffers full, or what is left of a connection that
    is closed, before it is disconnected."""
    keep_alive_seconds: float = 10.0
    """Between two SSE comments while there is nothing to send."""


class ApiKeys:
    """The keys that clients may use; only digests are kept, so none can reach a log."""

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        """Take the keys themselves.

        Raises:
            UsageError: one is too short, or cannot be sent in a header.
        """
        for key in keys:
            if len(key) < _SHORTEST_KEY:
                raise UsageError(f"an API key must have at least {_SHORTEST_KEY} characters")
            if not key.isascii() or not key.isprintable() or " " in key:
                raise UsageError("an API key is made of ASCII letters, digits and signs")
        self._digests = tuple(_digest(key) for key in keys)

    def __bool__(self) -> bool:
        """Whether clients need a key."""
        return bool(self._digests)

    def __repr__(self) -> str:
        return f"<{len(self._digests)} API keys>"

    def owner(self, key: str) -> str | None:
        """The name under which what a key's holder sent is cached; None if it is not a key.

        Takes the same time whichever key it is, and wherever the first difference is.
        """
        import hmac

        given, found = _digest(key), None
        for known in self._digests:
            if hmac.compare_digest(known, given):
                found = known
        return None if found is None else found.hex()[:32]

    def label(self, owner: str) -> str:
        """A short name of an owner for the log, which does not tell the key."""
        for number, known in enumerate(self._digests, 1):
            if known.hex().startswith(owner) and owner:
                return f"key {number}"
        return "local"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How the server listens, whom it serves, and the defaults of requests."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    unix: Path | None = None
    """Path of a socket to listen on instead of an address."""
    keys: ApiKeys = field(default_factory=ApiKeys)
    hosts: tuple[str, ...] = ()
    """Further names that a Host header may have; "*" allows all."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may use the server (CORS)."""
    aliases: tuple[str, ...] = ()
    """Further names that requests may call the model by; "*" allows all."""
    sampling: Sampling = Sampling()  # noqa: RUF009 - frozen
    """The sampling parameters that a request does not name."""
    max_tokens: int | None = None
    """Most tokens of a reply, also where a request asks for more."""
    limits: Limits = Limits()
    keep_loaded: float | None = None
    """Seconds after the last request when the model is unloaded; None: never."""
    load_first: bool = True
    """Load the model when the server starts, not with the first request."""
    models: int = 1
    """Models loaded side by side, at most, where the memory has room."""
    switch: bool = True
    """Whether a request may name another downloaded model of the catalogue, which is then loaded
    in place of the present one."""
    embedding: str | None = None
    """The embedding model beside it."""
    reranker: str | None = None
    """The reranker beside it."""
    lora_folders: tuple[Path, ...] = ()
    """Folders of adapters that requests may load."""
    suffix_first: bool = False
    """Whether prompts at a cursor have the text behind it first."""
    pulls: bool = True
    """Whether a request may download a model, where it may `switch` to it too."""
    deletes: bool = False
    """Whether a request may remove a downloaded model."""
    media: tuple[str, ...] = ()
    """Servers and folders that pictures may be fetched from; none unless named."""
    drain_seconds: float = 4.0
    """Seconds that running replies have to end when the server stops."""
    tls: tuple[Path, Path] | None = None
    """Files of the certificate and of its key; None: plain HTTP."""
    root_path: str = ""
    """Path in front of all others, such as ``/llm``, where a proxy does not remove it."""

    def most_tokens(self, asked: int | None) -> int | None:
        """The most tokens of a reply to a request that asks for so many; None: no limit. Numbers of
        any size are taken: the context ends the reply.
        """
        limits = [most for most in (asked, self.max_tokens) if most is not None]
        return min(*limits, _ANY) if limits else None


def require_key_for(host: str) -> None:
    """Refuse an address that other machines reach, where no API key is needed.

    Raises:
        UsageError: it is one, or no address at all.
    """
    if not is_local(host):
        raise UsageError(
            f"{host} can be reached by others: give an API key, with --api-key-file FILE, "
            "LOCALSPEC_API_KEY or --api-key KEY"
        )


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address or name.

    Raises:
        UsageError: there is no such name.
    """
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)  # noqa: S104
    except (socket.gaierror, UnicodeError):
        raise UsageError(f"no such address: {host}; --host takes an address or a name") from None
    return all(
        ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found
    )
