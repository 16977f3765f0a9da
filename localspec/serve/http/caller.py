"""Who sends a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from localspec.serve.http.body_budget import Share, share_of

STATE_KEY = "localspec.caller"
"""Key of the caller in an ASGI scope."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The client behind one HTTP request."""

    owner: str = ""
    """`ReplyRequest.owner`: what was read for one is never reused for another."""
    label: str = "local"
    """Name for the log; it tells no key."""
    trace: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """The headers that name the trace which the request is a part of (W3C Trace Context)."""
    body: Share | None = field(default=None, compare=False)
    """What the request's body has taken of the memory for all bodies."""


def caller_of(scope: Any) -> Caller:
    """The caller that the guard found; see `localspec.serve.http.guard`."""
    found = scope.get(STATE_KEY)
    known = found if isinstance(found, Caller) else Caller()
    return Caller(known.owner, known.label, known.trace, share_of(scope))
