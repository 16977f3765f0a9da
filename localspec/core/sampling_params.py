"""The sampling parameters of a request. Without numpy: an interface starts sooner that way."""

from __future__ import annotations

import math
from dataclasses import dataclass

from localspec.core import settings_schema as schema
from localspec.core.setting_spec import Scope
from localspec.errors import UsageError

LARGEST_BIAS = 1e30
"""With a bias of this size logits still fit into 32 bits, whatever the penalties."""

_SPECS = schema.of(Scope.SAMPLING)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How logits become a distribution. Defaults are llama.cpp's for chat.

    Ranges, defaults and meanings are those of the rows of `localspec.core.settings_schema`.
    """

    temperature: float = schema.TEMPERATURE.default
    top_k: int = schema.TOP_K.default
    top_p: float = schema.TOP_P.default
    min_p: float = schema.MIN_P.default
    repeat_penalty: float = schema.REPEAT_PENALTY.default
    """Divides positive and multiplies negative logits of recent tokens."""
    frequency_penalty: float = schema.FREQUENCY_PENALTY.default
    presence_penalty: float = schema.PRESENCE_PENALTY.default
    penalty_last_n: int = schema.PENALTY_LAST_N.default
    """Number of recent tokens that are penalised, prompt included."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, value added to its logit); -inf forbids a token."""

    def __post_init__(self) -> None:
        for spec in _SPECS:
            spec.require(getattr(self, spec.name))
        for token, value in self.logit_bias:
            if not (abs(value) <= LARGEST_BIAS or value == -math.inf):
                raise UsageError(
                    f"the logit bias of token {token} must be between {-LARGEST_BIAS:g} and "
                    f"{LARGEST_BIAS:g}, or -inf, which forbids it; not {value:g}"
                )

    @property
    def kind(self) -> str:
        """Class of settings under which drafts are accepted about equally often."""
        if self.temperature == 0 or self.top_k == 1:
            return "greedy"
        return f"{min(self.temperature, 2.0):.1f}"

    @property
    def penalises(self) -> bool:
        """Whether recent tokens change the logits."""
        return self.penalty_last_n > 0 and (
            self.repeat_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0
        )


GREEDY = Sampling(temperature=0.0)
