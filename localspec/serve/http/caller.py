"""Who sends a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STATE_KEY = "localspec.caller"
"""Key of the caller in an ASGI scope."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The client behind one HTTP request."""

    owner: str = ""
    """`ReplyRequest.owner`: what was read for one is never reused for another."""
    label: str = "local"
    """Name for the log; it tells no key."""


def caller_of(scope: Any) -> Caller:
    """The caller that the guard found; see `localspec.serve.http.guard`."""
    found = scope.get(STATE_KEY)
    return found if isinstance(found, Caller) else Caller()


__all__ = ["STATE_KEY", "Caller", "caller_of"]
