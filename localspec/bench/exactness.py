"""Proof on this machine that drafting changes nothing: what `localspec verify` does.

Every prompt is answered with and without drafting under the same seed. For equal logits the two
are equal token for token. Logits of a pass over one token and of a pass over several differ in
the last bits on most backends, so a divergence is examined: at the first differing token, how
large was their difference in the target's own scores? Only a gap that the measured difference
between such passes can bridge is a near-tie; any other is a failure.

What is drafted is all that a chat may draft, see `localspec.decode.exercise`, and the difference is
measured for passes of the widths that really occurred.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from localspec.bench.lab import Lab
from localspec.bench.scoring import Comparison, Scorer, all_exact, complete, request_of
from localspec.core.logits import Sampling
from localspec.core.picture import Picture
from localspec.runtime import Runtime

_NOISE_PROMPTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingComparison(Comparison):
    """One sampling setting over all prompts."""

    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a whole run of `verify`."""

    batch_noise: float
    """Largest difference of a logit between passes of one and of several tokens, seen here."""
    typical_noise: float
    """Median over positions of the largest difference."""
    comparisons: tuple[SettingComparison, ...]
    widths: dict[int, int]
    """Passes of all replies, plain ones too, by their tokens."""
    strict: bool = False
    """Whether strict mode promised that logits do not differ at all."""

    @property
    def exact(self) -> bool:
        """See `all_exact`."""
        return all_exact(self.comparisons, self.batch_noise, strict=self.strict)


def verify(
    runtime: Runtime,
    prompts: Sequence[str],
    sampling: Sequence[Sampling],
    *,
    max_tokens: int,
    seed: int,
) -> Verification:
    """Compare drafting with plain decoding.

    Raises:
        LocalspecError: a reply failed.
    """
    comparing = Comparing(runtime, prompts, sampling, max_tokens=max_tokens, seed=seed)
    for _ in comparing.steps():
        pass
    return comparing.so_far()


class Comparing:
    """A comparison of drafting with plain decoding that goes on step by step."""

    def __init__(
        self,
        runtime: Runtime,
        prompts: Sequence[str],
        sampling: Sequence[Sampling],
        *,
        max_tokens: int,
        seed: int,
        pictures: tuple[Picture, ...] = (),
    ) -> None:
        """Compare nothing yet; see `steps`. ``pictures`` are in front of every prompt."""
        self._pictures = pictures
        self._lab = Lab(runtime)
        self._prompts = prompts
        self._sampling = sampling
        self._max_tokens = max_tokens
        self._seed = seed
        self._scorer = Scorer(runtime, pictures)
        self._noise: list[float] = []
        self._widths: Counter[int] = Counter()
        self._comparisons: list[SettingComparison] = []

    def steps(self) -> Iterator[SettingComparison]:
        """Compare; the comparison at the current setting before its first prompt and after each.

        Raises:
            LocalspecError: a reply failed.
        """
        for setting in self._sampling:
            self._comparisons.append(SettingComparison(temperature=setting.temperature))
            yield self._comparisons[-1]
            for i, prompt in enumerate(self._prompts):
                found = self._compared(self._comparisons[-1], setting, prompt, self._seed + i)
                self._comparisons[-1] = found
                yield found

    def so_far(self) -> Verification:
        """The result of all steps until now; divergences are judged by all noise seen."""
        worst = max(self._noise, default=0.0)
        typical = statistics.median(self._noise) if self._noise else 0.0
        comparisons = tuple(c.judged(worst) for c in self._comparisons if c.replies)
        widths = dict(sorted(self._widths.items()))
        return Verification(
            worst, typical, comparisons, widths, bool(self._lab.runtime.info.strict)
        )

    def _compared(
        self, before: SettingComparison, setting: Sampling, prompt: str, seed: int
    ) -> SettingComparison:
        """One prompt more."""
        lab, most = self._lab, self._max_tokens
        passes = lab.borrow().target.widths
        passes.clear()
        asked = request_of(prompt, setting, seed, most, draft=True, pictures=self._pictures)
        plain = complete(lab.runtime.answer(replace(asked, draft=False)))
        drafted = complete(lab.exercise(asked))
        new = [width for width in passes if width > 1 and width not in self._widths]
        self._widths += passes
        self._noise += self._scorer.batch_noise(self._prompts[:_NOISE_PROMPTS], most, new)
        divergences = before.divergences
        if plain.tokens != drafted.tokens:
            worst = max(self._noise, default=0.0)
            found = self._scorer.examine(prompt, plain, drafted, setting, worst)
            divergences = (*divergences, found)
        return SettingComparison(
            temperature=setting.temperature,
            replies=before.replies + 1,
            tokens=before.tokens + len(plain.tokens),
            accepted=before.accepted + drafted.stats.accepted,
            verified=before.verified + drafted.stats.verified,
            rounds=before.rounds + drafted.stats.rounds,
            divergences=divergences,
        )
