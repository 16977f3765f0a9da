"""Which addresses others can reach."""

from __future__ import annotations

import ipaddress
import socket

from localspec.core.errors import UsageError


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
