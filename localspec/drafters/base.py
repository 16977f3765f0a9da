"""The seam between the round and the drafters."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from localspec.core.emitted import GRAMMAR
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import NO_LIMIT, Budget, Eager, Evidence, Pace
from localspec.core.values import (
    Distribution,
    Draft,
    Logits,
    Proposal,
    TokenView,
    no_draft,
)
from localspec.drafters.lookup.predicted_text import PredictedText


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for a draft."""

    seq: int
    tokens: Sequence[int]
    """Prompt and emitted tokens up to and including the pending one. The same object for the
    whole of a request; read-only for drafters."""
    budget: Budget
    noise: Noise
    processor: LogitsProcessor
    """Logits processing of this request: q is processed exactly like p."""
    pace: Pace = Eager()  # noqa: RUF009 - it has no state
    """Asked before each token by drafters that have a confidence."""
    probe: bool = False
    """Propose nothing; read the missing tokens and return evidence on them from `commit`. Drafters
    whose every proposal brings evidence ignore it."""
    reads: int = NO_LIMIT
    """Most of the missing tokens that a probe reads, from the first one on. Drafters whose reading
    is no work of theirs ignore it."""
    prompt: int = 0
    """Prompt length in `tokens`; drafts are scored on emitted tokens only."""
    room: int = 0
    """Most tokens on a path, where the budget allows fewer: what a grammar forces may use it."""
    exact: frozenset[Proposal] = frozenset(Proposal)
    """The proposals that the request's verifier is exact for."""
    favoured: Proposal = Proposal.COUPLED
    """The one of them that it favours."""
    prediction: PredictedText | None = None
    """The text that the client expects, if it told one; only its drafter moves it on."""
    recalls: str | None = None
    """Owner whose earlier requests may be drafted from, see `Drafter.remember`; None: nobody's."""

    @property
    def position(self) -> int:
        """Position of the first token to propose."""
        return len(self.tokens)

    def before(self, drafted: Sequence[int] = ()) -> TokenView:
        """The tokens before the place after the drafted ones."""
        return TokenView(self.tokens, drafted)

    def forced(self, drafted: Sequence[int] = ()) -> list[int]:
        """Tokens that the request's grammar forces after the drafted ones, as many as fit."""
        constraint, room = self.processor.constraint, self.room - len(drafted)
        if constraint is None or room <= 0:
            return []
        return constraint.forced(self.before(drafted))[:room]

    def over(self, drafted: Sequence[int]) -> bool:
        """Whether the reply ends with the drafted tokens, as its grammar has it."""
        constraint = self.processor.constraint
        return constraint is not None and constraint.over(self.before(drafted))

    def legal(self, drafted: Sequence[int]) -> int:
        """How many of the drafted tokens the request's grammar allows."""
        constraint = self.processor.constraint
        return len(drafted) if constraint is None else constraint.legal(self.tokens, drafted)

    def proposal(self, preferred: Proposal) -> Proposal:
        """``preferred`` by the drafter, or where the verifier is not exact for it, what that
        favours.
        """
        return preferred if preferred in self.exact else self.favoured


@dataclass(frozen=True, slots=True)
class Committed:
    """The tokens that one round emitted for one sequence; a prompt just read is a large round."""

    seq: int
    all_tokens: Sequence[int]
    """All tokens of the request, the same object as `Ask.tokens`."""
    new_tokens: Sequence[int]
    """The last of them, emitted by this round."""
    p: tuple[Distribution, ...] = ()
    """The target's distributions that verified the new tokens, from the first one on."""
    draft: Draft | None = None
    """The draft scored in the round, of any drafter; None for a prompt."""
    logits: Logits | None = None
    """(1 + n, V) of that draft, as in `Scores`: valid until the target's next pass."""
    forced: frozenset[int] = frozenset()
    """Places in `new_tokens` whose tokens a grammar forced: they are not evidence."""


@dataclass(frozen=True, slots=True)
class DraftState:
    """A drafter's cache of one sequence as bytes."""

    length: int
    """Tokens in the cache."""
    state: memoryview


class Drafter(abc.ABC):
    """Proposes tokens and learns which were accepted.

    A drafter's cache is a prefix of the committed tokens; it catches up on the next ``propose``.
    Everything but ``name`` and ``propose`` has a default, for drafters without a cache.
    """

    name: str
    """Name on the command line and in the statistics."""
    quotes_chats = False
    """Whether it drafts from saved chats too, whoever asks."""

    @abc.abstractmethod
    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """One draft for each ask, within its budget; may be empty."""

    @property
    def members(self) -> Sequence[Drafter]:
        """The drafters that the steps of a plan name, in order of preference."""
        return (self,)

    def commit(self, committed: Sequence[Committed]) -> list[Evidence]:
        """Called after every round, also for rounds in which another drafter or none drafted.

        Returns how the tokens that it predicted compare with the emitted ones, as far as it knows;
        under rejection sampling a drafted token was accepted exactly where it was emitted.
        """
        del committed
        return []

    def prompt_read(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """The target has read the first ``upto`` tokens of the prompt ``tokens``.

        For drafters that read along, because the target's hidden states are only kept for the last
        tokens.
        """
        del seq, tokens, upto

    def read_missed(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """Read the first ``upto`` tokens of a prompt now, part by part as the target does, rather
        than all of them once it is committed. For drafters that compute while they read.
        """
        del seq, tokens, upto

    def unread(self, seq: int, tokens: Sequence[int]) -> int:
        """How many of the tokens, all but the last, `read_missed` would read."""
        del seq, tokens
        return 0

    @property
    def problem(self) -> str | None:
        """Why it has stopped drafting for good, in a sentence for the user; None if it has not."""
        return None

    def logits(self, seq: int, tokens: Sequence[int]) -> Logits | None:
        """(V,) logits of the token after ``tokens``, a copy for `Runtime.examine`; None if unknown.

        Its cache then holds ``tokens``.
        """
        del seq, tokens
        return None

    def length(self, seq: int) -> int:
        """Tokens of the sequence in its cache."""
        del seq
        return 0

    def state(self, seq: int, tokens: Sequence[int]) -> Mapping[str, DraftState]:
        """Its cache of the sequence, if that begins with ``tokens`` or is a beginning of them: by a
        name that no cache of another kind has. Empty where it has none, or catches up quickly.
        """
        del seq, tokens
        return {}

    def restore(self, seq: int, tokens: Sequence[int], states: Mapping[str, DraftState]) -> None:
        """The target's sequence was replaced by ``tokens``; ``states`` are those saved with them,
        of this drafter or of others.
        """
        del seq, tokens, states

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        del seq

    def remember(self, owner: str, tokens: Sequence[int]) -> None:
        """A request of that owner has ended, with these tokens of prompt and reply: later ones of
        the same owner may be drafted for from them, those of others never.
        """
        del owner, tokens

    def forget_requests(self) -> None:  # noqa: B027 - most drafters have no memory
        """Forget what `remember` was told."""


def compare(
    committed: Committed, source: str, tokens: Sequence[int], confidences: Sequence[float]
) -> list[Evidence]:
    """Evidence on tokens that a drafter predicted for a round, up to the first miss."""
    found: list[Evidence] = []
    for i, (token, confidence) in enumerate(zip(tokens, confidences, strict=False)):
        if i >= len(committed.new_tokens):
            break
        accepted = token == committed.new_tokens[i]
        if i not in committed.forced:
            found.append(Evidence(committed.seq, source, confidence, accepted))
        if not accepted:
            break
    return found


class Off(Drafter):
    """The drafter that never drafts."""

    name = "off"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """Empty drafts."""
        return [no_draft(self.name) for _ in asks]


class GrammarDrafter(Off):
    """Proposes nothing of its own.

    What a grammar forces continues every draft, also the empty one of this drafter
    (`localspec.decode.routing`). Alone, it shows what the grammar is worth without any other.
    """

    name = GRAMMAR


def open_grammar(texts: object) -> GrammarDrafter:
    """Open the drafter of a grammar's tokens; no text is searched."""
    del texts
    return GrammarDrafter()
