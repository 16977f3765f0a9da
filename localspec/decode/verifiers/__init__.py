"""Verification: which drafted tokens are accepted, and the target's own token after them."""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from localspec.core.errors import ProposalError, UsageError
from localspec.core.noise import Noise
from localspec.core.values import Draft, Proposal, TargetRows, Verdict
from localspec.decode.verifiers.match import Match
from localspec.decode.verifiers.rejection import Rejection


class Verifier(Protocol):
    """Pure: no model, no clock, no global randomness."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    @property
    def proposals(self) -> frozenset[Proposal]:
        """The proposals it is exact for."""
        ...

    @property
    def favours(self) -> Proposal:
        """How a draft model should choose tokens for the highest acceptance."""
        ...

    def __call__(
        self,
        draft: Draft,
        rows: TargetRows,
        noise: Noise,
        position: int,
        ends: Container[int] = (),
    ) -> Verdict:
        """Judge ``draft``.

        ``rows(0)`` is the target's distribution after the pending token, ``rows(1 + i)`` after
        node i; ``position`` is that of the first token it may emit. Nothing follows an accepted
        token of ``ends``: the row after it is not asked for.
        """
        ...


VERIFIERS: dict[str, Verifier] = {v.name: v for v in (Match(), Rejection())}


def verifier(name: str) -> Verifier:
    """The verifier of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in VERIFIERS:
        raise UsageError(f"no verifier called {name!r}; there are: {', '.join(VERIFIERS)}")
    return VERIFIERS[name]


def require_exact(verifier: Verifier, draft: Draft) -> None:
    """Refuse a draft that the verifier would judge wrongly.

    Raises:
        ProposalError: names both.
    """
    if len(draft) and draft.proposal not in verifier.proposals:
        raise ProposalError(
            f"drafter {draft.source!r} proposes {draft.proposal.value} tokens, for which verifier "
            f"{verifier.name!r} is not exact; choose another drafter or verifier"
        )


__all__ = ["VERIFIERS", "Match", "Rejection", "Verifier", "require_exact", "verifier"]
