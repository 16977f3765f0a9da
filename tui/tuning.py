"""Settings by name: what `/set` lists and changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.parameters import Sampling

if TYPE_CHECKING:
    from localspec.options import Options

_SAMPLED: dict[str, type] = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repeat_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
}
"""Take effect with the next reply."""


def _length(text: str) -> int | None:
    return None if text == "auto" else int(text)


def _names(text: str) -> tuple[str, ...] | None:
    return None if text == "auto" else tuple(part.strip() for part in text.split(","))


_LOADED: dict[str, tuple[str, Callable[[str], object]]] = {
    "verifier": ("verifier", str),
    "drafter": ("drafter", _names),
    "draft_max": ("draft_max", _length),
    "ctx": ("context", _length),
    "threads": ("threads", _length),
}
"""Need the model to be loaded again: name -> (field of Options, how its text is read)."""


class SettingError(ValueError):
    """A setting that cannot be meant; the text is for the person."""


def rows(sampling: Sampling, options: Options | None) -> list[tuple[str, str]]:
    """Every setting and its value."""
    found = [(name, f"{getattr(sampling, name):g}") for name in _SAMPLED]
    if options is not None:
        for name, (field, _) in _LOADED.items():
            value = getattr(options, field)
            shown = ",".join(value) if isinstance(value, tuple) else value
            found.append((name, "auto" if shown is None else f"{shown}, loads the model again"))
    return found


def read(text: str) -> tuple[str, str]:
    """Name and value of ``name value``.

    Raises:
        SettingError: there is no such setting, or no value.
    """
    name, _, value = text.replace("=", " ").strip().partition(" ")
    name, value = name.lower().replace("-", "_"), value.strip()
    if name not in _SAMPLED and name not in _LOADED:
        raise SettingError(f"there is no setting {name!r}; /set lists them")
    if not value:
        raise SettingError(f"/set {name} needs a value")
    return name, value


def sampled(sampling: Sampling, name: str, value: str) -> Sampling | None:
    """With one value changed; None where the setting belongs to the loaded model.

    Raises:
        SettingError, UsageError: a value that cannot be meant.
    """
    if name not in _SAMPLED:
        return None
    try:
        return dataclasses.replace(sampling, **{name: _SAMPLED[name](value)})
    except ValueError:
        raise SettingError(f"{name} needs a number, not {value!r}") from None


def loaded(name: str, value: str) -> dict[str, object]:
    """The change of the options.

    Raises:
        SettingError: a value that cannot be meant.
    """
    field, parse = _LOADED[name]
    try:
        return {field: parse(value)}
    except ValueError:
        raise SettingError(f"{name} needs a whole number or auto, not {value!r}") from None
