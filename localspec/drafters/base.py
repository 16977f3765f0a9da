"""The seam between the round and whatever drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import PLAIN, Budget, Eager, Evidence, Pace, Plan
from localspec.core.values import Distribution, Draft, Logits, no_draft


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for a draft."""

    seq: int
    tokens: Sequence[int]
    """Prompt and emitted tokens up to and including the pending one. The same object for the
    whole of a request; to be read, never changed."""
    budget: Budget
    noise: Noise
    processor: LogitsProcessor
    """Logits processing of this request: q goes through what p goes through."""
    pace: Pace = Eager()  # noqa: RUF009 - it has no state
    """To be asked before each token by drafters that know how sure they are."""
    look: bool = False
    """Propose nothing; read what is missing and judge yourself on it. To be ignored by drafters
    that judge themselves anyway."""
    prompt: int = 0
    """How many of ``tokens`` are the prompt's: nobody is judged by what the target did not say."""
    plan: Plan = PLAIN
    """For cascades, which make of it one ask a drafter."""

    @property
    def position(self) -> int:
        """Of the first token to propose."""
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Committed:
    """The news of one round for one sequence; a prompt just read is a large one."""

    seq: int
    known: Sequence[int]
    """All tokens of the request, the object that the asks bring."""
    tokens: Sequence[int]
    """The last of them, those that are new."""
    hidden: dict[int, NDArray[np.float32]]
    """Layer -> features of the rows scored, for drafters that asked for them."""
    p: tuple[Distribution, ...] = ()
    """The target's distributions that the new tokens were judged by, from the first one on."""
    draft: Draft | None = None
    """What was scored in the round, whoever drafted it; None for a prompt."""
    logits: Logits | None = None
    """(1 + n, V) of that draft, as in `Scores`: valid until the target's next pass."""


class Drafter(Protocol):
    """Proposes, and learns what stood. Its cache is a prefix of the committed tokens; it catches
    up on the next ``propose``.
    """

    @property
    def name(self) -> str:
        """As on the command line and in the statistics."""
        ...

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """One draft an ask, within its budget; may be empty."""
        ...

    def commit(self, news: Sequence[Committed]) -> list[Evidence]:
        """Told to every drafter after every round, also to those that did not draft.

        Returns how the tokens that it had in mind compare with what was emitted, as far as it
        knows; under rejection sampling a drafted token stood exactly where it was emitted.
        """
        ...

    def length(self, seq: int) -> int:
        """Tokens of the sequence in its cache."""
        ...

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        ...


@runtime_checkable
class Follows(Protocol):
    """A drafter that reads a prompt while the target does, because it needs what only then is at
    hand: the target's hidden states.
    """

    def follow(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """The target has read the first ``upto`` tokens of the request ``tokens``."""
        ...


@runtime_checkable
class Fallible(Protocol):
    """A drafter that may find out that it cannot draft at all."""

    @property
    def trouble(self) -> str | None:
        """Why it has stopped drafting, in words for people; None while all is well."""
        ...


@runtime_checkable
class Guesses(Protocol):
    """A drafter that can say what it makes of any place: for people who ask, not for drafting."""

    def logits(self, seq: int, tokens: Sequence[int]) -> Logits | None:
        """(V,) what it would draw the token after ``tokens`` from; None where it cannot read them.

        Its cache then holds ``tokens``.
        """
        ...


def judge(
    news: Committed, source: str, tokens: Sequence[int], confidences: Sequence[float]
) -> list[Evidence]:
    """Evidence on tokens that a drafter had in mind for a round, up to the first miss."""
    found: list[Evidence] = []
    for i, (token, confidence) in enumerate(zip(tokens, confidences, strict=False)):
        if i >= len(news.tokens):
            break
        stood = token == news.tokens[i]
        found.append(Evidence(news.seq, source, i, confidence, stood))
        if not stood:
            break
    return found


class Off:
    """The drafter that never drafts."""

    name = "off"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """Empty drafts."""
        return [no_draft(self.name) for _ in asks]

    def commit(self, news: Sequence[Committed]) -> list[Evidence]:
        """Nothing to learn."""
        del news
        return []

    def length(self, seq: int) -> int:
        """Always 0."""
        del seq
        return 0

    def close(self, seq: int) -> None:
        """Nothing to forget."""
