"""Flags that several commands share, and how they become options.

Precedence: flag, ``LOCALSPEC_*`` variable, preset, the person's config.toml, default.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from localspec.cli.output import tell
from localspec.cli.source import PRESET, with_source
from localspec.config import paths, presets
from localspec.config import settings as config_settings
from localspec.config.presets import Preset
from localspec.core import drafter_registry
from localspec.core.sampling_params import Sampling
from localspec.errors import UsageError
from localspec.loading.options import Options

_Function = TypeVar("_Function", bound=Callable[..., Any])
_DEFAULTS = Sampling()
_DRAFTERS = [name for name in drafter_registry.NAMES if name != drafter_registry.OFF]


class _AutoInt(click.ParamType[int | None]):
    """A whole number of at least 0, or ``auto``, which is None."""

    name = "auto|N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value is None or value == "auto":
            return None
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = -1
        if number < 0:
            self.fail(f"{value!r} is neither auto nor a whole number of at least 0", param, ctx)
        return number


_IN_CONFIG: dict[Any, tuple[tuple[type, ...], str]] = {
    None: ((str,), "a text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}
"""What TOML types a flag of a type takes, and how a person calls them."""


def _option(*names: str, **settings: Any) -> Callable[[_Function], _Function]:
    """A click option that also reads its variable and the person's config.toml."""
    long = max((n for n in names if n.startswith("--")), key=len).split("/")[0]
    key = long.removeprefix("--").replace("-", "_")
    types, named = (
        ((bool,), "true or false")
        if settings.get("is_flag")
        else _IN_CONFIG.get(settings.get("type"), ((int, str), "a whole number or auto"))
    )

    def default() -> Any:
        fallback = settings.get("default", False if settings.get("is_flag") else None)
        preset = chosen_preset()
        if preset is not None and key in preset.values:
            return preset.values[key]
        value = config_settings.settings().get(key, fallback)
        if value is not None and type(value) not in types:
            raise UsageError(f"{key} in {paths.config_dir() / 'config.toml'} must be {named}")
        return value

    return click.option(
        *names, **{**settings, "default": _Default(default), "envvar": f"LOCALSPEC_{key.upper()}"}
    )


class _Default:
    """What a flag is where it is not given: found when it is asked for, and told by ``--help``."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find

    def __call__(self) -> Any:
        return self._find()

    def __str__(self) -> str:
        try:
            return str(self._find())
        except UsageError:  # the command itself says what is wrong
            return "unusable in config.toml"


def _apply(function: _Function, options: list[Callable[[_Function], _Function]]) -> _Function:
    for option in reversed(options):
        function = option(function)
    return function


def _choose_preset(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if name is not None:
        context.meta[PRESET] = presets.called(name)


def preset_flag(function: _Function) -> _Function:
    """``--preset``: read before all others, since it holds values for them."""
    return click.option(
        "--preset",
        metavar="NAME",
        envvar="LOCALSPEC_PRESET",
        help="System message and settings of [presets.NAME] in config.toml.",
        is_eager=True,
        expose_value=False,
        callback=_choose_preset,
    )(function)


def chosen_preset() -> Preset | None:
    """The one that the running command was given."""
    context = click.get_current_context(silent=True)
    found = context.meta.get(PRESET) if context is not None else None
    return found if isinstance(found, Preset) else None


def model_argument(function: Callable[..., int]) -> Callable[..., int]:
    """MODEL, which may also be written as for ``run``: ``-m MODEL``."""

    @functools.wraps(function)
    def command(*args: Any, model: str | None, option: str | None, **rest: Any) -> int:
        if model is not None and option is not None:
            raise UsageError(f"the model is named twice, {model!r} and -m {option!r}; name one")
        return function(*args, model=option if model is None else model, **rest)

    option = click.option("-m", "--model", "option", hidden=True)
    return click.argument("model", required=False)(option(command))


def model_flags(function: _Function) -> _Function:
    """What to load and how."""
    return _apply(
        function,
        [
            _option("-d", "--draft", metavar="MODEL", help="Draft model, or none."),
            _option("--require-draft", is_flag=True, help="Fail if the draft model is unusable."),
            _option("--ctx", type=int, metavar="N", help="Context in tokens."),
            _option(
                "--verifier", default="match", metavar="NAME", help="match (default) or rejection."
            ),
            _option(
                "--drafter",
                metavar="NAMES",
                help=f"{', '.join(_DRAFTERS)} (docs/drafters.md); or off.",
            ),
            _option("--draft-max", type=_AutoInt(), help="Draft length K, or auto: what pays."),
            _option(
                "--gpu-layers", type=_AutoInt(), help="Target layers on the GPU; auto: what fits."
            ),
            _option("--draft-gpu-layers", type=_AutoInt(), default="auto", help="Draft likewise."),
            _option("--threads", type=int, metavar="N", help="Threads; measured by default."),
            _option("--kv-type", metavar="TYPE", help="KV cache: f16 (default), q8_0, q4_0, ..."),
            _option("--remember", is_flag=True, help="Draft from earlier saved chats too."),
            _option("--offline", is_flag=True, help="Never connect to anything."),
        ],
    )


def _of_sampling(*names: str, help: str) -> Callable[[_Function], _Function]:  # noqa: A002 - as click
    """A flag of a field of `Sampling`, whose type and default it has."""
    field = max(names, key=len).removeprefix("--").replace("-", "_")
    default = getattr(_DEFAULTS, field)
    metavar = "N" if isinstance(default, int) else None
    return _option(
        *names,
        type=type(default),
        default=default,
        show_default=True,
        metavar=metavar,
        help=f"{help}.",
    )


def sampling_flags(function: _Function) -> _Function:
    """How to sample."""
    return _apply(
        function,
        [
            _of_sampling("-t", "--temperature", "--temp", help="0: always the likeliest token"),
            _of_sampling("--top-k", help="Only the N likeliest tokens, 0: all"),
            _of_sampling("--top-p", help="The likeliest tokens of this probability in all"),
            _of_sampling("--min-p", help="Tokens of this fraction of the best one's probability"),
            _of_sampling("--repeat-penalty", help="Divides scores of tokens seen lately"),
            _of_sampling("--presence-penalty", help="Off their scores, once"),
            _of_sampling("--frequency-penalty", help="Off their scores, each time"),
            _of_sampling("--penalty-last-n", help="Lately: the last N tokens"),
            _option("--seed", type=int, metavar="N", help="Same seed, same text."),
            _option("-n", "--max-tokens", type=int, metavar="N", help="Longest reply."),
        ],
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """The shared flags of one call, sorted."""

    options: Options
    sampling: Sampling
    seed: int | None
    max_tokens: int | None


def sort_flags(model: str | None, flags: dict[str, Any]) -> Asked:
    """Typed values of the shared flags.

    Raises:
        UsageError: a value that cannot be meant.
    """
    for line in config_settings.unknown():
        tell(f"{paths.config_dir() / 'config.toml'}: {line}")
    try:
        return _sorted(model, flags)
    except UsageError as error:
        raise with_source(error) from None


def _sorted(model: str | None, flags: dict[str, Any]) -> Asked:
    names = flags.get("drafter")
    drafter = tuple(part.strip() for part in names.split(",")) if names else None
    chosen: object = model
    if chosen is None:
        preset = chosen_preset()
        named = preset.text("model") if preset is not None else None
        usual = config_settings.settings().get("model", "demo")
        chosen = os.environ.get("LOCALSPEC_MODEL") or named or usual
    if not isinstance(chosen, str):
        raise UsageError(f"model in {paths.config_dir() / 'config.toml'} must be a text")
    options = Options(
        model=chosen,
        draft=flags["draft"],
        context=flags["ctx"],
        gpu_layers=flags["gpu_layers"],
        draft_gpu_layers=flags["draft_gpu_layers"],
        threads=flags["threads"],
        kv_type=flags["kv_type"],
        verifier=flags["verifier"],
        drafter=drafter,
        draft_max=flags["draft_max"],
        require_draft=flags["require_draft"],
        remember=flags["remember"],
        offline=flags["offline"],
    )
    max_tokens = flags.get("max_tokens")
    if max_tokens is not None and max_tokens < 1:
        raise UsageError(f"max-tokens must be at least 1, not {max_tokens}")
    known = set(inspect.signature(Sampling).parameters)
    sampling = Sampling(**{k: v for k, v in flags.items() if k in known})
    return Asked(options, sampling, flags.get("seed"), max_tokens)
