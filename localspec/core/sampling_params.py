"""The sampling parameters of a request. Without numpy: an interface starts sooner that way."""

from __future__ import annotations

import math
from dataclasses import dataclass

from localspec.errors import UsageError

_RANGES = (
    ("temperature", 0.0, 100.0),
    ("top_k", 0, 1 << 30),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("repeat_penalty", 0.0, 100.0),
    ("frequency_penalty", -100.0, 100.0),
    ("presence_penalty", -100.0, 100.0),
    ("penalty_last_n", 0, 1 << 30),
)


_SMALLEST = 1e-6
_LARGEST_BIAS = 1e30
"""With a bias of this size logits still fit into 32 bits, whatever the penalties."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How logits become a distribution. Defaults are llama.cpp's for chat."""

    temperature: float = 0.8
    """0 is greedy."""
    top_k: int = 40
    """0 keeps all."""
    top_p: float = 0.95
    """1 keeps all."""
    min_p: float = 0.05
    """Keeps tokens with at least this fraction of the best one's probability; 0 keeps all."""
    repeat_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens seen lately; 1 is off."""
    frequency_penalty: float = 0.0
    """Subtracted once for each time a token was seen lately."""
    presence_penalty: float = 0.0
    """Subtracted once if a token was seen lately."""
    penalty_last_n: int = 64
    """How many of the last tokens (prompt included) count as lately."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, value added to its logit); -inf forbids a token."""

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not (low <= value <= high):  # catches NaN as well
                given = f"{value:.6}" if isinstance(value, float) else str(value)[:20]
                raise UsageError(f"{name} must be between {low:g} and {high:g}, not {given}")
        if self.repeat_penalty <= 0:
            raise UsageError(f"repeat_penalty must be above 0, not {self.repeat_penalty:g}")
        for name in ("temperature", "repeat_penalty"):
            value = getattr(self, name)
            if 0 < value < _SMALLEST:  # logits divided by less are no numbers any more
                raise UsageError(f"{name} must be at least {_SMALLEST:g}, not {value:g}")
        for token, value in self.logit_bias:
            if not (abs(value) <= _LARGEST_BIAS or value == -math.inf):
                raise UsageError(
                    f"the logit bias of token {token} must be between {-_LARGEST_BIAS:g} and "
                    f"{_LARGEST_BIAS:g}, or -inf, which forbids it; not {value:g}"
                )

    @property
    def kind(self) -> str:
        """Settings whose drafts survive about equally often share a kind."""
        if self.temperature == 0 or self.top_k == 1:
            return "greedy"
        return f"{min(self.temperature, 2.0):.1f}"

    @property
    def penalises(self) -> bool:
        """Whether the tokens seen lately change the logits."""
        return self.penalty_last_n > 0 and (
            self.repeat_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0
        )


GREEDY = Sampling(temperature=0.0)
