"""Names of hosts."""

from __future__ import annotations

import ipaddress


def is_here(host: str) -> bool:
    """Whether a host is this machine: by its address, since 127.0.0.1.example is any machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
