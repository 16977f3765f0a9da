"""Where the value of a flag came from, so that an error names what the user has to change."""

from __future__ import annotations

import click
from click.core import ParameterSource

from localspec.config import presets, settings
from localspec.config.presets import Preset
from localspec.core.errors import UsageError

PRESET = "localspec.preset"
"""Key of a click context's ``meta``: the preset that the command was given."""


def name_source(error: click.ClickException) -> None:
    """Have an error about a flag name the environment variable or file that its value is from."""
    if isinstance(error, click.BadParameter) and error.ctx is not None:
        place = None if error.param is None else _place(error.ctx, error.param)
        if place is not None:
            error.param_hint = place


def with_source(error: UsageError, param: click.Parameter | None = None) -> UsageError:
    """The same error, with the variables, files or presets that set what it is about.

    Without ``param`` the flags are those whose names the message has: settings that only make sense
    together are checked after all flags were read.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return error
    words = set(str(error).split())
    params = [p for p in context.command.params if p.name in words] if param is None else [param]
    places = [place for p in params if (place := _place(context, p)) is not None]
    return UsageError(f"{error} (set by {', '.join(places)})") if places else error


def _place(context: click.Context, param: click.Parameter) -> str | None:
    """The variable or file that a parameter was set by; None for the command line."""
    source = context.get_parameter_source(param.name)
    if source is ParameterSource.ENVIRONMENT and isinstance(param.envvar, str):
        return param.envvar
    if source is ParameterSource.DEFAULT:
        name = param.name
        preset = context.meta.get(PRESET)
        if isinstance(preset, Preset) and name in preset.values:
            return presets.place(preset.name, name)
        try:
            if name in settings.settings():
                return settings.place(name)
        except UsageError:  # the file is unreadable, which is the error that is reported
            return None
    return None
