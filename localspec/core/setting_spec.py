"""The description of a setting, and how its values are read and checked.

The settings themselves are the rows of `localspec.core.settings_schema`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from localspec.core.errors import UsageError

Value = str | int | float | bool | None
"""A setting as config.toml and presets hold it; None is automatic."""
T = TypeVar("T", bound=Value)

AUTO = "auto"
"""Leaves a value to localspec."""
_NO_LIMIT = 1 << 30
"""A limit of this size keeps a value in 32 bits; messages do not mention it."""
_TRUE, _FALSE = {"1", "true", "t", "yes", "y", "on"}, {"0", "false", "f", "no", "n", "off", ""}
_LONGEST = 40
"""Characters of a refused value that a message shows."""


class Kind(enum.Enum):
    """The kind of a setting's values; the text completes "... must be"."""

    TEXT = "a text"
    NUMBER = "a number"
    WHOLE = "a whole number"
    SWITCH = "true or false"
    CHOICE = "a name"
    NAMES = "names separated by commas"
    LIST = "a list"


class Scope(enum.Enum):
    """When a setting takes effect."""

    LOAD = enum.auto()
    """When a model is loaded: a field of `localspec.core.options.Options`."""
    SAMPLING = enum.auto()
    """With the next reply: a field of `localspec.core.sampling_params.Sampling`."""
    REQUEST = enum.auto()
    """With the next reply: a part of `localspec.core.reply_request.ReplyRequest`."""
    INTERFACE = enum.auto()
    """In the chat interface only."""


_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.TEXT: (str,),
    Kind.NUMBER: (int, float),
    Kind.WHOLE: (int,),
    Kind.SWITCH: (bool,),
    Kind.CHOICE: (str,),
    Kind.NAMES: (str,),
    Kind.LIST: (str, list, tuple),
}


@dataclass(frozen=True, slots=True)
class SettingSpec(Generic[T]):
    """One setting."""

    name: str
    """In config.toml, presets and the settings panel. The flag and the variable derive from it."""
    kind: Kind
    scope: Scope
    default: T
    help: str
    """One line, without a capital and a full stop; flags and the panel show it."""
    low: float | None = None
    high: float | None = None
    smallest: float | None = None
    """The smallest value other than 0."""
    choices: tuple[str, ...] = ()
    """Values of CHOICE and NAMES."""
    alone: str = ""
    """A choice that cannot be combined with others."""
    reads: Callable[[str | Sequence[str]], str] | None = None
    """Makes the value of a LIST, a text, from what was typed or from texts; raises UsageError."""
    repeated: bool = False
    """Whether the flag may be given several times, for a LIST."""
    auto: bool = False
    """Whether ``auto`` is a value: None in Python."""
    flags: tuple[str, ...] = ()
    """Further names of the flag."""
    metavar: str = ""
    field: str = ""
    """Its name in `Options`, if that differs."""
    short: str = ""
    """Its name in the panel, where it is too long for a column."""
    in_config: bool = True
    in_presets: bool = True
    in_panel: bool = False

    @property
    def flag(self) -> str:
        """The long flag."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def label(self) -> str:
        """Its name in the panel."""
        return self.short or self.name.replace("_", " ")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"LOCALSPEC_{self.name.upper()}"

    @property
    def python_name(self) -> str:
        """The field of `Options`, `Sampling` or `ReplyRequest` that holds it."""
        return self.field or self.name

    def parse(self, text: str) -> Value:
        """The value that a typed text means; None is automatic.

        Raises:
            UsageError: the text is no value of this setting.
        """
        text = text.strip() if self.kind is not Kind.TEXT else text
        if self._is_auto(text):
            return None
        try:
            match self.kind:
                case Kind.NUMBER:
                    return self._within(float(text))
                case Kind.WHOLE:
                    return self._within(int(text))
                case Kind.SWITCH:
                    return _switch(text)
                case _:
                    return self._known(text)
        except ValueError:
            raise self._refused(text) from None

    def check(self, value: object) -> Value:
        """A value of config.toml or of a preset, as `parse` would give it.

        Raises:
            UsageError: its type is wrong, or it is out of range.
        """
        if self._is_auto(value):
            return None
        if type(value) not in _TYPES[self.kind]:
            raise self._refused(value)
        if isinstance(value, list | tuple):
            return self._listed(value)
        assert isinstance(value, (str, int, float))
        if isinstance(value, str):
            return self._known(value)
        if self.kind is Kind.NUMBER:
            try:
                value = float(value)
            except OverflowError:
                raise self._outside(value) from None
        return self._within(value)

    def require(self, value: object) -> None:
        """Check a value of `Options`, `Sampling` or `ReplyRequest`.

        Raises:
            UsageError: it is of another type, out of range, or no name that is known.
        """
        if value is None:
            if not self.auto:
                raise self._refused(value)
        elif isinstance(value, tuple):
            self._require_names(value)
        elif isinstance(value, str) and str in _TYPES[self.kind]:
            self._known(value)
        elif str in _TYPES[self.kind] or not hasattr(value, self._conversion):
            raise self._refused(value)
        else:
            self._within(value)  # type: ignore[arg-type] # numpy's numbers are none of Python's

    @property
    def _conversion(self) -> str:
        """Name of the method that numbers of this kind have, numpy's too."""
        return "__index__" if self.kind is Kind.WHOLE else "__float__"

    def _is_auto(self, value: object) -> bool:
        return self.auto and (value == AUTO or (value == "" and self.kind is not Kind.TEXT))

    def _within(self, value: float) -> float:
        low, high = self.low, self.high
        # Written so that NaN, which compares as false, is refused as well.
        if low is not None and not value >= low:
            raise self._outside(value)
        if high is not None and not value <= high:
            raise self._outside(value)
        if self.smallest is not None and value and value < self.smallest:
            raise UsageError(
                f"{self.name} must be 0 or at least {self.smallest:g}, not {_shown(value)}"
            )
        return value

    def _known(self, text: str) -> str | None:
        if self.kind is Kind.CHOICE:
            self._require_names((text,))
        if self.kind is Kind.NAMES:
            names = names_of(text)
            self._require_names(names)
            return ",".join(names)
        if self.reads is not None:
            return self.reads(text)
        return text

    def _listed(self, texts: Sequence[object]) -> str:
        if self.reads is None or not all(isinstance(text, str) for text in texts):
            raise UsageError(f"{self.name} must be a list of texts")
        return self.reads([str(text) for text in texts])

    def _require_names(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in self.choices:
                known = ", ".join(self.choices)
                raise UsageError(f"no {self.name} called {_shown(name)}; there are: {known}")
        if len(names) > 1 and self.alone in names:
            raise UsageError(f"{self.name} {self.alone} cannot be combined with others")

    def _refused(self, value: object) -> UsageError:
        or_auto = " or auto" if self.auto else ""
        # As it was written: 1.0 is no whole number, and 1 would be.
        shown = repr(float(value)) if isinstance(value, float) else _shown(value)
        return UsageError(f"{self.name} must be {self.kind.value}{or_auto}, not {shown}")

    def _outside(self, value: float) -> UsageError:
        low, high = self.low, self.high
        if low is not None and (high is None or (high >= _NO_LIMIT and value < low)):
            limits = f"at least {_shown(low)}"
        else:
            limits = f"between {_shown(low)} and {_shown(high)}"
        return UsageError(f"{self.name} must be {limits}, not {_shown(value)}")


def names_of(text: str) -> tuple[str, ...]:
    """The names of a list with commas."""
    return tuple(part.strip() for part in text.split(","))


def _switch(text: str) -> bool:
    word = text.lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(text)
    return word in _TRUE


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(float(value))
    try:
        text = repr(value)
    except ValueError:  # thousands of digits
        return "a number of that size"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
