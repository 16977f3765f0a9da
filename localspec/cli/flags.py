"""Flags that several commands share, how they become options, and where their values came from.

Each is made from a row of `localspec.core.settings_schema`. Precedence: flag, ``LOCALSPEC_*``
variable, preset, the user's config.toml, default.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from localspec.cli import complete
from localspec.cli.output import require_utf8, tell
from localspec.config import presets
from localspec.config import settings as config_settings
from localspec.config.presets import Preset
from localspec.core import settings_schema as schema
from localspec.core.errors import UsageError
from localspec.core.options import Options
from localspec.core.sampling_params import Sampling
from localspec.core.setting_spec import AUTO, Kind, Scope, SettingSpec, Value, names_of

PRESET = "localspec.preset"
"""Key of a click context's ``meta``: the preset that the command was given."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_METAVARS = {Kind.NUMBER: "X", Kind.WHOLE: "N"}


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
            if name in config_settings.settings():
                return config_settings.place(name)
        except UsageError:  # the file is unreadable, which is the error that is reported
            return None
    return None


class _SettingType(click.ParamType[Any]):
    """Values of a setting: texts of the command line or a variable, values of a TOML file."""

    def __init__(self, spec: SettingSpec[Any]) -> None:
        self._spec = spec
        self.name = spec.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value; the error names the variable or file that it is from."""
        return _converted(self._spec, value, param, ctx)

    def split_envvar_value(self, rv: str) -> list[str]:
        """A variable has one value, also of a flag that may be given several times."""
        return [rv]


class _SwitchType(click.types.BoolParamType):
    """The same for a flag without a value: click reads its variable only for a type like this."""

    def __init__(self, spec: SettingSpec[Any]) -> None:
        self._spec = spec

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """The value; the error names the variable or file that it is from."""
        return bool(_converted(self._spec, value, param, ctx))


def _converted(
    spec: SettingSpec[Any], value: Any, param: click.Parameter | None, ctx: click.Context | None
) -> Any:
    source = ctx.get_parameter_source(spec.name) if ctx is not None else None
    try:
        if isinstance(value, str) and source is not ParameterSource.DEFAULT:
            return spec.parse(value)
        return spec.check(value)
    except UsageError as error:
        raise with_source(error, param) from None


class _Default:
    """The value of a flag that is not given: looked up when the command runs or shows its help."""

    def __init__(self, spec: SettingSpec[Any], unset: str) -> None:
        self._spec = spec
        self._unset = unset

    def __call__(self) -> Any:
        preset, name = chosen_preset(), self._spec.name
        value: object = self._spec.default
        if preset is not None and name in preset.values:
            value = preset.values[name]
        elif self._spec.in_config:
            value = config_settings.settings().get(name, value)
        if self._spec.repeated:
            return [value]
        return AUTO if value is None and self._spec.auto else value

    def __str__(self) -> str:
        try:
            if self._unset and self._spec.name not in config_settings.settings():
                return self._unset
            value = self()
            if self._spec.repeated:
                (value,) = value
            checked = self._spec.check(value)
        except UsageError:  # the command itself says what is wrong
            return "unusable in config.toml"
        return ", ".join(json.loads(str(checked))) or "none" if self._spec.repeated else str(value)


def setting_option(
    spec: SettingSpec[Any], *, sources: bool = True, unset: str = "", **changes: Any
) -> Callable[[_Function], _Function]:
    """The flag of a setting, with ``changes`` to what click is told.

    Without ``sources`` only the command line counts: no variable, no preset, no config.toml.
    ``unset`` says what the command does where nothing sets it, if that is not the default.
    """
    text = f"{spec.help[0].upper()}{spec.help[1:]}."
    if any(choice not in spec.help for choice in spec.choices):
        text += f" Names: {', '.join(spec.choices)}."
    settings: dict[str, Any] = {"help": text}
    if spec.kind is Kind.SWITCH:
        settings |= {"type": _SwitchType(spec), "is_flag": True}
    else:
        settings |= {"type": _SettingType(spec), "metavar": spec.metavar or _METAVARS[spec.kind]}
    settings |= {"shell_complete": complete.of_setting(spec)}
    if spec.repeated:
        settings |= {"multiple": True, "callback": _together(spec)}
    if sources:
        settings |= {"default": _Default(spec, unset), "envvar": spec.variable}
        settings |= {"show_default": spec.kind is not Kind.SWITCH}
    short = [name for name in spec.flags if not name.startswith("--")]
    other = [name for name in spec.flags if name.startswith("--")]
    return click.option(*short, spec.flag, *other, spec.name, **(settings | changes))


def _together(
    spec: SettingSpec[Any],
) -> Callable[[click.Context, click.Parameter, Sequence[str]], Value]:
    """Makes one value of those of a flag that was given several times."""
    return lambda _context, _parameter, given: spec.check(list(given))


def several(
    *options: Callable[[_Function], _Function],
) -> Callable[[_Function], _Function]:
    """All these flags, in their order."""

    def add(function: _Function) -> _Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _choose_preset(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if name is not None:
        context.meta[PRESET] = presets.called(name)


preset_flag = click.option(
    "--preset",
    metavar="NAME",
    envvar="LOCALSPEC_PRESET",
    shell_complete=complete.presets,
    help="Use the settings of [presets.NAME] in config.toml; run and chat, its system message too.",
    is_eager=True,
    expose_value=False,
    callback=_choose_preset,
)
"""Read before all others, since it holds values for them."""


def chosen_preset() -> Preset | None:
    """The preset that the running command was given."""
    context = click.get_current_context(silent=True)
    found = context.meta.get(PRESET) if context is not None else None
    return found if isinstance(found, Preset) else None


def system_message(given: str | None) -> str | None:
    """The system message of ``--system``, else that of the preset.

    Raises:
        UsageError: it had bytes that are not UTF-8.
    """
    if given is not None:
        return require_utf8(given, schema.SYSTEM.flag)
    preset = chosen_preset()
    return preset.system if preset is not None else None


def given(name: str) -> bool:
    """Whether the running command has a value of a parameter by its flag or its variable."""
    source = click.get_current_context().get_parameter_source(name)
    return source is not ParameterSource.DEFAULT


def chosen(name: str) -> bool:
    """Whether a setting has a value by its flag, its variable or config.toml."""
    return given(name) or name in config_settings.settings()


def with_jobs(options: Options, jobs: int) -> Options:
    """The options with so many replies at a time, where nothing says how many."""
    if chosen(schema.JOBS.name):
        return options
    return dataclasses.replace(options, parallel=jobs)


def model_argument(function: Callable[..., int]) -> Callable[..., int]:
    """MODEL, which may also be written as for ``run``: ``-m MODEL``."""

    @functools.wraps(function)
    def command(*args: Any, model: str | None, option: str | None, **rest: Any) -> int:
        if model is not None and option is not None:
            raise UsageError(f"the model is given twice, {model!r} and -m {option!r}; name one")
        return function(*args, model=option if model is None else model, **rest)

    option = click.option(
        *("-m", "--model", "option"),
        metavar="MODEL",
        shell_complete=complete.models,
        help="The same as MODEL, written as for `run`.",
    )
    return click.argument("model", required=False, shell_complete=complete.models)(option(command))


def flags_of(specs: Sequence[SettingSpec[Any]], **unset: str) -> Callable[[_Function], _Function]:
    """The flags of settings; ``unset`` has, by their names, what `setting_option` is told."""
    return several(*(setting_option(spec, unset=unset.get(spec.name, "")) for spec in specs))


LOADING = tuple(spec for spec in schema.of(Scope.LOAD) if spec is not schema.MODEL)
"""All settings of the scope LOAD but MODEL itself."""
REPLIES = (*schema.of(Scope.SAMPLING), schema.SEED, schema.MAX_TOKENS)
"""How to sample, the seed and the length of a reply."""
model_flags = flags_of(LOADING)
sampling_flags = flags_of(REPLIES)


@dataclass(frozen=True, slots=True)
class SharedFlags:
    """The values of the flags that several commands share."""

    options: Options
    sampling: Sampling
    seed: int | None
    max_tokens: int | None


def sort_flags(model: str | None, flags: dict[str, Any]) -> SharedFlags:
    """Typed values of the shared flags; tells of names in config.toml that have no effect.

    Raises:
        UsageError: values that are refused, alone or together.
    """
    for line in config_settings.unknown():
        tell(f"{config_settings.file()}: {line}")
    try:
        return _sorted(model, flags)
    except UsageError as error:
        raise with_source(error) from None


def _sorted(model: str | None, flags: dict[str, Any]) -> SharedFlags:
    loading: dict[str, Any] = {spec.python_name: flags[spec.name] for spec in LOADING}
    drafter = flags["drafter"]
    loading["drafter"] = names_of(drafter) if drafter is not None else None
    options = Options(model=_model() if model is None else model, **loading)
    sampling = Sampling(
        **{spec.name: flags[spec.name] for spec in schema.of(Scope.SAMPLING) if spec.name in flags}
    )
    return SharedFlags(options, sampling, flags.get("seed"), flags.get("max_tokens"))


def _model() -> str:
    """The model of a command that names none."""
    named = os.environ.get(schema.MODEL.variable)
    if named:
        return named
    preset = chosen_preset()
    if preset is not None and (text := preset.text("model")) is not None:
        return text
    return str(schema.MODEL.check(config_settings.settings().get("model", schema.MODEL.default)))
