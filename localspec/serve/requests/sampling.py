"""The sampling parameters of a request: every row of the settings with that scope is a field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from localspec.core import sampler_settings as samplers
from localspec.core import settings_schema as schema
from localspec.core.errors import UsageError
from localspec.core.sampling_params import LARGEST_BIAS, MOST_BIASES, Sampling
from localspec.core.setting_spec import Scope, SettingSpec
from localspec.serve.http.errors import bad_request
from localspec.serve.http.json_body import shown
from localspec.serve.http.typed import Body, checked, setting
from localspec.serve.http.wording import kind_of

_ALIASES: dict[str, SettingSpec[Any]] = {
    "repetition_penalty": samplers.REPEAT_PENALTY,  # vLLM's name
    "repeat_last_n": samplers.PENALTY_LAST_N,  # llama.cpp's name
    "typ_p": samplers.TYPICAL_P,  # llama.cpp's other name
}
_ALL = {
    samplers.TOP_K: 0,
    samplers.PENALTY_LAST_N: 1 << 30,
    samplers.DRY_PENALTY_LAST_N: 1 << 30,
    samplers.TOP_N_SIGMA: 0.0,
}
"""Settings of which -1 is all, as llama.cpp and vLLM have it, and what that is here."""
_SPECS: dict[str, SettingSpec[Any]] = _ALIASES | {
    spec.name: spec for spec in schema.of(Scope.SAMPLING)
}
"""By field; where two say the same, the later one counts: ours."""
_BIASES = msgspec.Meta(
    description="numbers that are added to the logits of tokens, by token id",
    extra_json_schema={
        "propertyNames": {"pattern": "^[0-9]{1,9}$"},
        "additionalProperties": {
            "type": ["number", "null"],
            "minimum": -LARGEST_BIAS,
            "maximum": LARGEST_BIAS,
        },
        "maxProperties": MOST_BIASES,
    },
)

if TYPE_CHECKING:
    _Settings = Body
else:
    _Settings = msgspec.defstruct(
        "_Settings",
        [
            (
                name,
                Annotated[Any, setting(spec, minus_one="-1 = all" if spec in _ALL else "")],
                None,
            )
            for name, spec in _SPECS.items()
        ],
        bases=(Body,),
        kw_only=True,
    )


class SamplingFields(_Settings, kw_only=True):
    """How a reply is sampled."""

    logit_bias: Annotated[dict[str, Any], _BIASES] | None = None

    def sampling(self, defaults: Sampling) -> Sampling:
        """The parameters; ``defaults`` are those that the request does not name.

        Raises:
            ApiError: one is out of range.
        """
        values: dict[str, Any] = {
            spec.name: getattr(defaults, spec.name) for spec in schema.of(Scope.SAMPLING)
        }
        for name, spec in _SPECS.items():
            given = getattr(self, name)
            value = _ALL[spec] if given == -1 and spec in _ALL else checked(name, spec, given)
            if value is not None:
                values[spec.name] = value
        try:
            return Sampling(**values, logit_bias=self._biases())
        except UsageError as error:
            raise bad_request(str(error), "logit_bias") from None

    def _biases(self) -> tuple[tuple[int, float], ...]:
        given = self.logit_bias or {}
        for name, value in given.items():
            place = f"logit_bias.{shown(name)}"
            if not name.isascii() or not name.isdecimal() or len(name) > 9:
                said = f"{place} is not a token id; the keys of logit_bias are token ids"
                raise bad_request(said, place)
            if value is not None and type(value) not in {int, float}:
                raise bad_request(f"{place} must be a number, not {kind_of(value)}", place)
        return tuple((int(n), _float(n, value)) for n, value in given.items() if value is not None)


def _float(name: str, value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        place = f"logit_bias.{name}"
        raise bad_request(f"{place} is a number of an impossible size", place) from None
