"""The sampling parameters of a request. Without numpy: an interface starts sooner that way."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass

from localspec.core import sampler_settings as settings
from localspec.core.errors import UsageError

LARGEST_BIAS = 1e30
"""With a bias of this size logits still fit into 32 bits, whatever the penalties."""

MOST_BIASES = 8192
"""Tokens with a bias of their own: all of them are read in one step."""

_SPECS = (*settings.USUAL, *settings.FURTHER)
_USUAL = settings.SAMPLERS.default
_XTC_OFF = 0.5
"""Two tokens cannot both have more than this."""


@functools.lru_cache(maxsize=64)  # asked for every drafted token, see `Sampling.kind`
def _order(samplers: str) -> tuple[str, ...]:
    names = settings.read_samplers(samplers)
    return () if names == settings.NONE else tuple(names.split(","))


@dataclass(frozen=True, slots=True)
class Sampling:
    """How logits become a distribution. Defaults are llama.cpp's for chat.

    Ranges, defaults and meanings are those of the rows of `localspec.core.sampler_settings`.
    """

    temperature: float = settings.TEMPERATURE.default
    top_k: int = settings.TOP_K.default
    top_p: float = settings.TOP_P.default
    min_p: float = settings.MIN_P.default
    repeat_penalty: float = settings.REPEAT_PENALTY.default
    """Divides positive and multiplies negative logits of recent tokens."""
    frequency_penalty: float = settings.FREQUENCY_PENALTY.default
    presence_penalty: float = settings.PRESENCE_PENALTY.default
    penalty_last_n: int = settings.PENALTY_LAST_N.default
    """Number of recent tokens that are penalised, prompt included."""
    dry_multiplier: float = settings.DRY_MULTIPLIER.default
    dry_base: float = settings.DRY_BASE.default
    dry_allowed_length: int = settings.DRY_ALLOWED_LENGTH.default
    dry_penalty_last_n: int = settings.DRY_PENALTY_LAST_N.default
    dry_sequence_breakers: str = settings.DRY_SEQUENCE_BREAKERS.default
    """A list of texts in JSON."""
    top_n_sigma: float = settings.TOP_N_SIGMA.default
    typical_p: float = settings.TYPICAL_P.default
    xtc_probability: float = settings.XTC_PROBABILITY.default
    xtc_threshold: float = settings.XTC_THRESHOLD.default
    dynatemp_range: float = settings.DYNATEMP_RANGE.default
    dynatemp_exponent: float = settings.DYNATEMP_EXPONENT.default
    mirostat: int = settings.MIROSTAT.default
    mirostat_tau: float = settings.MIROSTAT_TAU.default
    mirostat_eta: float = settings.MIROSTAT_ETA.default
    samplers: str = settings.SAMPLERS.default
    """Names of samplers in their order, with commas between them."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, value added to its logit); -inf forbids a token."""

    def __post_init__(self) -> None:
        for spec in _SPECS:
            value = getattr(self, spec.name)
            if value is not spec.default:  # most are, and a round may make one anew
                spec.require(value)
        if len(self.logit_bias) > MOST_BIASES:
            raise UsageError(
                f"logit_bias has {len(self.logit_bias)} tokens, and {MOST_BIASES} is the most"
            )
        for token, value in self.logit_bias:
            if not (abs(value) <= LARGEST_BIAS or value == -math.inf):
                raise UsageError(
                    f"the logit bias of token {token} must be between {-LARGEST_BIAS:g} and "
                    f"{LARGEST_BIAS:g}, or -inf, which forbids it; not {value:g}"
                )

    @property
    def kind(self) -> str:
        """Class of settings under which drafts are accepted about equally often."""
        if not self.chained:  # asked for every drafted token
            if self.temperature == 0 or self.top_k == 1:
                return "greedy"
            return f"{min(self.temperature, 2.0):.1f}"
        if self.greedy:
            return "greedy"
        named = f"{min(self.temperature, 2.0):.1f}"
        active = {"dry": self.dries, "xtc": self.excludes, "mirostat": self.mirostat > 0}
        return named + "".join(f"+{name}" for name, on in active.items() if on)

    @property
    def greedy(self) -> bool:
        """Whether one token always has all the probability."""
        if not self.chained:
            return self.temperature == 0 or self.top_k == 1
        if self.mirostat:
            return self.temperature == 0
        order = self.order
        cold = self.temperature == 0 and self.dynatemp_range == 0 and "temperature" in order
        return cold or (self.top_k == 1 and "top_k" in order)

    @property
    def penalises(self) -> bool:
        """Whether recent tokens change the logits."""
        return self.penalty_last_n > 0 and (
            self.repeat_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0
        )

    @property
    def order(self) -> tuple[str, ...]:
        """The samplers, in their order."""
        return _order(self.samplers)

    @property
    def breakers(self) -> tuple[str, ...]:
        """Texts that no repetition of DRY goes beyond."""
        return tuple(json.loads(settings.read_breakers(self.dry_sequence_breakers)))

    @property
    def chained(self) -> bool:
        """Whether `localspec.core.sampler_chain` is needed: samplers beyond the usual ones, or in
        another order.
        """
        return (
            self.dry_multiplier > 0
            or self.xtc_probability > 0
            or self.mirostat > 0
            or self.typical_p < 1
            or self.top_n_sigma > 0
            or self.dynatemp_range > 0
            or self.samplers != _USUAL
        )

    @property
    def dries(self) -> bool:
        """Whether DRY changes logits."""
        return self.dry_multiplier > 0 and self.dry_penalty_last_n > 0

    @property
    def excludes(self) -> bool:
        """Whether XTC may leave out tokens."""
        return self.xtc_probability > 0 and self.xtc_threshold <= _XTC_OFF


GREEDY = Sampling(temperature=0.0)
