"""HTTP through the proxies of the environment, which are looked up for each address.

``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``, and the system's own on macOS. An
HTTP client that reads them itself does so once, and cannot be made at all where one of them is none
that it knows, though it were for other addresses.
"""

from __future__ import annotations

import importlib.util
import threading
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files.private import without_user

WEB = frozenset({"http", "https"})
"""Schemes of the addresses that are asked."""
_PROXIES = WEB | {"socks5", "socks5h"}


def is_address(text: str, schemes: frozenset[str]) -> bool:
    """Whether a text is an address with a host and one of some schemes."""
    try:
        parts = urlsplit(text)
        httpx2.URL(text)
        return parts.scheme in schemes and bool(parts.hostname) and (parts.port or 1) > 0
    except (ValueError, httpx2.InvalidURL):
        return False


class ByEnvironment(httpx2.BaseTransport):
    """Sends each request through the proxy that the environment names for its address."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_proxy: dict[str | None, httpx2.HTTPTransport] = {}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            UsageError: the environment names no usable proxy.
            LocalspecError: it names one that speaks SOCKS, or certificates, and cannot have it.
            httpx2.HTTPError: the connection failed.
        """
        return self._transport(proxy_of(request.url)).handle_request(request)

    def close(self) -> None:
        """Close all connections."""
        for transport in list(self._by_proxy.values()):
            transport.close()

    def _transport(self, proxy: str | None) -> httpx2.HTTPTransport:
        with self._lock:
            if proxy not in self._by_proxy:
                try:
                    self._by_proxy[proxy] = httpx2.HTTPTransport(proxy=proxy)
                except OSError as error:
                    raise LocalspecError(
                        "the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read: "
                        f"{error.strerror or error}"
                    ) from None
            return self._by_proxy[proxy]


def proxy_of(url: httpx2.URL) -> str | None:
    """The proxy for an address; None for none.

    Raises:
        UsageError: the variable names no usable proxy.
        LocalspecError: it names one that speaks SOCKS, and a package is missing.
    """
    proxy = _named(url)
    speaks_socks = proxy is not None and proxy.startswith("socks")
    if speaks_socks and importlib.util.find_spec("socksio") is None:
        raise LocalspecError(
            f"the proxy {without_user(proxy or '')} speaks SOCKS, which needs the package "
            "socksio (pip install socksio); or set HTTPS_PROXY to an http:// proxy"
        )
    return proxy


def _named(url: httpx2.URL) -> str | None:
    if proxy_bypass(url.host):
        return None
    proxies = getproxies()
    scheme = url.scheme if proxies.get(url.scheme) else "all"
    text = proxies.get(scheme, "").strip()
    if not text:
        return None
    address = text if "://" in text else f"http://{text}"
    if address.startswith("socks://"):  # the form that desktops write
        address = address.replace("socks://", "socks5://", 1)
    if is_address(address, _PROXIES):
        return address
    raise UsageError(
        f"{scheme.upper()}_PROXY={without_user(text)} is not a usable proxy; write "
        "http://HOST:PORT or socks5://HOST:PORT"
    )
