"""The settings ``allow_tools`` and ``tools``: what runs without being asked, what is offered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from localspec.config import edit
from localspec.config import settings as config_settings
from localspec.core.errors import UsageError
from localspec.core.settings_schema import ALLOW_TOOLS, TOOLS

_NAME = re.compile(r"[^/,]+/(?:\*|[A-Za-z0-9_.-]+)")


def names(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The tools that the settings allow.

    Raises:
        UsageError: one of them is no name of a tool.
    """
    given = settings.get(ALLOW_TOOLS.name)
    return _listed("" if given is None else str(ALLOW_TOOLS.check(given)))


def offered(settings: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The tools of servers that the settings, or a preset's, offer; None for all.

    Raises:
        UsageError: one of them is no name of a tool.
    """
    given = settings.get(TOOLS.name)
    text = "all" if given is None else str(TOOLS.check(given)).strip()
    return None if text == "all" else () if text == "none" else _listed(text)


def _listed(text: str) -> tuple[str, ...]:
    return checked(name.strip() for name in text.split(",") if name.strip())


def checked(given: Iterable[str]) -> tuple[str, ...]:
    """The names, all of the form that is known.

    Raises:
        UsageError: one is not.
    """
    found = tuple(given)
    for name in found:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} names no tool: write server/tool, or server/* for all")
    return found


def add(name: str) -> None:
    """Add a tool to the list in config.toml as it is now: another window may have added one, and
    the user may have taken some back.

    Raises:
        LocalspecError: it cannot be read or written.
    """
    with edit.alone():
        now = names(config_settings.read(config_settings.file()))
        edit.save({(ALLOW_TOOLS.name,): ", ".join(sorted({*now, name}))})
