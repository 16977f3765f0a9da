"""Proof on this machine that drafting changes nothing: what `localspec verify` does.

Every prompt is answered with and without drafting under the same seed. For equal logits the two
are equal token for token. Logits of a pass over one token and of a pass over several differ in
the last bits on most backends, so a divergence is examined: at the first differing token, how
large was their difference in the target's own scores? Only a gap that the measured difference
between such passes can bridge is a near-tie; any other is a failure.

What is drafted is all that a chat may draft, see `localspec.policy.exercise`, and the difference is
measured for passes of the widths that really occurred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from localspec.bench.lab import Lab
from localspec.bench.scoring import ComparingReplies, Comparison, all_exact, complete
from localspec.core.logits import Sampling
from localspec.core.reply_request import ReplyRequest
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


@dataclass
class Comparing(ComparingReplies[SettingComparison]):
    """A comparison of drafting with plain decoding."""

    widths: Counter[int] = field(default_factory=Counter, init=False)

    def so_far(self) -> Verification:
        """The result of all steps until now; divergences are judged by all noise seen."""
        widths = dict(sorted(self.widths.items()))
        return Verification(*self._judged(), widths, bool(self.runtime.info.strict))

    def _begun(self, temperature: float) -> SettingComparison:
        return SettingComparison(temperature=temperature)

    def _compared(
        self, before: SettingComparison, asked: ReplyRequest, prompt: str
    ) -> SettingComparison:
        lab, most = Lab(self.runtime), self.max_tokens
        passes = lab.borrow().target.widths
        passes.clear()
        plain = complete(self.runtime.answer(replace(asked, draft=False)))
        drafted = complete(lab.exercise(asked))
        new = [width for width in passes if width > 1 and width not in self.widths]
        self.widths += passes
        self.noise += self.scorer.batch_noise(self.prompts[:_NOISE_PROMPTS], most, new)
        found = None
        if plain.tokens != drafted.tokens:
            worst = max(self.noise, default=0.0)
            found = self.scorer.examine(prompt, plain, drafted, asked.sampling, worst)
        now = before.with_reply(plain, drafted, found)
        return replace(now, rounds=before.rounds + drafted.stats.rounds)
