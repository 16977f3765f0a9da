"""Whether the Hub answers; never asked when connections are forbidden."""

from __future__ import annotations

import os
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

from localspec import __version__
from localspec.config import settings
from localspec.core import settings_schema as schema
from localspec.core.errors import LocalspecError
from localspec.core.files.private import without_user
from localspec.doctor.findings import Finding
from localspec.models.catalog.links import forbidding_variable, is_true
from localspec.models.hub.client import HUB
from localspec.models.hub.error_messages import why_unreachable

_WAIT_S = 2.0


def forbidden_by(*, offline: bool) -> str | None:
    """The setting that forbids connections: the flag, a variable, or the user's settings."""
    if offline:
        return "--offline"
    if is_true(schema.OFFLINE.variable):
        return schema.OFFLINE.variable
    if (variable := forbidding_variable()) is not None:
        return variable
    try:
        return "config.toml" if settings.settings().get("offline") is True else None
    except LocalspecError:
        return None  # another finding reports that; unreadable settings forbid nothing


def check(*, offline: bool) -> Iterator[Finding]:
    """Yield one finding, never "broken": all else works without the Hub."""
    address = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
    shown = without_user(address)
    reason = forbidden_by(offline=offline)
    if reason is not None:
        text = f"offline, by {reason}: {shown} was not asked"
        yield Finding("hub", "ok", text, details={"endpoint": shown, "state": "offline"})
        return
    began = time.perf_counter()
    problem = _problem(address)
    if problem is None:
        text = f"{shown} answers in {1000 * (time.perf_counter() - began):.0f} ms"
        yield Finding("hub", "ok", text, details={"endpoint": shown, "state": "reachable"})
        return
    text = f"{shown} cannot be reached ({problem}); what is on this machine works without it"
    fix = "check HF_ENDPOINT" if address != HUB else "check the network, or work with --offline"
    details = {"endpoint": shown, "state": "unreachable"}
    yield Finding("hub", "note", text, fix, details)


def _problem(address: str) -> str | None:
    """Why the Hub does not answer in time; None if it answers anything."""
    try:
        usable = address.isprintable() and " " not in address and urlsplit(address).port != 0
    except ValueError:  # whose text may hold a part of a password
        usable = False
    if not (usable and address.startswith(("http://", "https://"))):
        return "not an http address"
    answers: queue.Queue[str | None] = queue.Queue()

    def ask() -> None:
        headers = {"User-Agent": f"localspec/{__version__}"}
        request = urllib.request.Request(address, method="HEAD", headers=headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_WAIT_S):  # noqa: S310 - http(s) only
                answers.put(None)
        except urllib.error.HTTPError as error:
            error.close()
            answers.put(None)  # a refusal is an answer
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            cause = reason if isinstance(reason, BaseException) else error
            answers.put(why_unreachable(cause))

    # Resolving a name has no time limit.
    threading.Thread(target=ask, daemon=True).start()
    try:
        return answers.get(timeout=_WAIT_S + 0.5)
    except queue.Empty:
        return f"no answer within {_WAIT_S:.0f} s"
