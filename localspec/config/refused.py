"""Every setting of config.toml, checked as the commands and the interface check it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localspec.config import allow_tools, presets, settings
from localspec.core.errors import UsageError
from localspec.core.options import Options
from localspec.core.setting_spec import Scope
from localspec.core.settings_schema import ALLOW_TOOLS, BY_NAME, TOOLS, of

_TOGETHER = "together"
"""Stands for the name of a setting where several do not fit together."""


def refused() -> dict[str, str]:
    """The error of each setting that is refused, by its name; but for those that only the interface
    knows, its keys and themes.

    Raises:
        UsageError: the file is not TOML; the message names the place.
    """
    found = settings.settings()
    errors: dict[str, str] = {}
    for name in found:
        try:
            _require(name, found)
        except UsageError as error:
            errors[name] = str(error)
    if not errors:
        loading: dict[str, Any] = {s.python_name: settings.value(s) for s in of(Scope.LOAD)}
        try:
            Options(**loading)
        except UsageError as error:
            errors[_TOGETHER] = str(error)
    return errors


def _require(name: str, found: Mapping[str, object]) -> None:
    """Check one setting. What is unknown has no effect."""
    if name in BY_NAME and BY_NAME[name].in_config:
        settings.value(BY_NAME[name])
    with settings.named(name):
        if name == ALLOW_TOOLS.name:
            allow_tools.names(found)
        elif name == TOOLS.name:
            allow_tools.offered(found)
    if name == "presets":
        presets.presets()
