"""The frozen values that pass between the parts of the round.

Letters: n drafted nodes, s support of a distribution, V vocabulary.

Tokens before a place are a view without a copy: a text may have a hundred thousand.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from localspec.core.emitted import GRAMMAR, Origin, TokenLogprobs

Ids = NDArray[np.int32]
"""Token ids."""
Probs = NDArray[np.float64]
"""Probabilities."""
Logits = NDArray[np.float32]
"""One row of logits (V,) or several (rows, V)."""

_Scalar = TypeVar("_Scalar", bound=np.generic)

Tokens = Sequence[int]
"""Any sequence of token ids."""
Extension = tuple[int, Tokens, int]
"""(sequence, tokens, rows): tokens to append, the last ``rows`` of which each yield logits."""

ROOT = -1
"""The parent of a node that directly follows the pending token."""


class Proposal(enum.Enum):
    """How the tokens of a draft were chosen. A verifier lists those it is exact for."""

    DETERMINISTIC = "deterministic"
    """Fixed given the prefix (argmax, n-gram, a head's top-k): q is one-hot."""
    SAMPLED = "sampled"
    """Every node drawn independently from the q stored with it."""
    WITHOUT_REPLACEMENT = "without replacement"
    """Siblings drawn one after the other from q without the earlier ones, in node order."""
    COUPLED = "coupled"
    """argmax(log q + the target's own Gumbel noise): exact for the match verifier only."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution over the vocabulary after logits processing, stored by its support."""

    ids: Ids
    """(s,) ascending, unique."""
    probs: Probs
    """(s,) positive, sums to 1."""

    def probability(self, token: int) -> float:
        """The probability of one token, 0.0 outside the support."""
        i = int(self.ids.searchsorted(token))
        if i < len(self.ids) and self.ids[i] == token:
            return float(self.probs[i])
        return 0.0

    @property
    def certain(self) -> bool:
        """Whether a single token carries all the probability (temperature 0, say)."""
        return len(self.ids) == 1


def _fixed(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """The array, made read-only."""
    array.flags.writeable = False
    return array


_CERTAIN = _fixed(np.ones(1))


def one_hot(token: int) -> Distribution:
    """All probability on ``token``."""
    return Distribution(np.array([token], np.int32), _CERTAIN)


@dataclass(frozen=True, slots=True)
class Probed:
    """A drafter that did not draft has read what it had missed, and compared its predictions."""

    source: str
    """Its name."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Draft:
    """The tokens that a drafter proposes after the pending one: a chain or a tree, in one form."""

    tokens: Ids
    """(n,) ids; parents come before children; n == 0 means plain decoding."""
    parents: Ids
    """(n,) index of the parent node, ROOT for children of the pending token."""
    proposal: Proposal
    probs: tuple[Distribution, ...] | None
    """The q that node i was drawn from; None iff DETERMINISTIC or COUPLED."""
    source: str
    """Name of the drafter that was asked, whose time it was; nodes have `source_of`."""
    seconds: float = 0.0
    """Time spent on drafting it, and on the probe."""
    considered: int = 0
    """Tokens whose q was computed: the drafted ones, and one more where the pace refused it."""
    forced: frozenset[int] = frozenset()
    """Nodes that the request's grammar forced. Such a node has one-hot p and q, is counted as the
    grammar's (`GRAMMAR`) and is not evidence on the drafter."""
    probed: Probed | None = None
    """The probe of another drafter in the same round."""

    def __post_init__(self) -> None:
        assert len(self.tokens) == len(self.parents)
        assert self.probs is None or len(self.probs) == len(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        """Whether every node follows the one before it."""
        return bool(self.parents.tolist() == [*range(-1, len(self) - 1)])

    @property
    def own_seconds(self) -> float:
        """Seconds without those of the probe."""
        return self.seconds - (0.0 if self.probed is None else self.probed.seconds)

    def source_of(self, node: int) -> str:
        """Name of the drafter that a node is counted for."""
        return GRAMMAR if node in self.forced else self.source

    def children(self, node: int) -> list[int]:
        """Indices of the children of ``node`` (ROOT for the pending token), in order."""
        return [i for i, parent in enumerate(self.parents.tolist()) if parent == node]

    def siblings(self) -> list[list[int]]:
        """`children` of every node, in one go: of ROOT first, then of node i at 1 + i."""
        found: list[list[int]] = [[] for _ in range(1 + len(self))]
        for i, parent in enumerate(self.parents.tolist()):
            found[1 + parent].append(i)
        return found

    def prefix(self, node: int) -> tuple[int, ...]:
        """Tokens on the path from the root to ``node``, which is included; () for ROOT."""
        return tuple(int(self.tokens[above]) for above in self.path(node))

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes from the root to ``node``, which is included; () for ROOT."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = int(self.parents[node])
        return tuple(reversed(nodes))


def chain_parents(n: int) -> Ids:
    """Parents of a chain of n nodes: [-1, 0, 1, ...]."""
    return np.arange(-1, n - 1, dtype=np.int32)


_NO_IDS = _fixed(np.empty(0, np.int32))


def no_draft(source: str, seconds: float = 0.0, considered: int = 0) -> Draft:
    """The empty draft: this round is plain decoding."""
    return Draft(_NO_IDS, _NO_IDS, Proposal.DETERMINISTIC, None, source, seconds, considered)


@dataclass(frozen=True, slots=True)
class Scores:
    """The target's logits for one sequence's pending token and draft."""

    logits: Logits
    """(1 + n, V) view, valid until the next pass: row 0 follows the pending token, row 1 + i
    follows node i."""
    padding: int = 0
    """Rows that were computed after the draft because `Work.rows` asked for them."""


TargetRows = Callable[[int], Distribution]
"""The target's distribution of row i, computed when asked for: row 0 follows the pending token,
row 1 + i follows node i. A verifier asks only for rows on its path."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verifier's decision for one sequence: a path down the draft, then one token."""

    path: tuple[int, ...]
    """Accepted nodes from the root down."""
    token: int
    """The target's own token after the path; where the path ends the reply, its last token."""
    verified: int
    """Drafted tokens that were tested: accepted <= verified <= drafted."""

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of `Scores` after the pending token and after each node of the path."""
        return (0, *(1 + node for node in self.path))


@dataclass(frozen=True, slots=True)
class Emitted:
    """One token given to the caller."""

    token: int
    origin: Origin
    source: str | None
    """Name of the drafter, for accepted tokens."""
    text: str = ""
    """Text that became final with it; see `Token.text`."""
    logprobs: TokenLogprobs | None = None
    """See `Token.logprobs`."""


def origins(draft: Draft, verdict: Verdict) -> list[tuple[int, Origin, str | None]]:
    """The tokens of a round, each with its origin and, if it was accepted, the drafter's name:
    accepted ones first, the target's own last.
    """
    path = verdict.path
    tokens = draft.tokens[list(path)].tolist()
    accepted: list[tuple[int, Origin, str | None]] = [
        (token, Origin.ACCEPTED, draft.source_of(node))
        for token, node in zip(tokens, path, strict=True)
    ]
    if not len(draft):
        origin = Origin.PLAIN
    elif draft.children(path[-1] if path else ROOT):
        origin = Origin.CORRECTED
    else:
        origin = Origin.BONUS
    return [*accepted, (verdict.token, origin, None)]


class TokenView(Sequence[int]):
    """The first tokens of a text, then drafted ones.

    The text may grow meanwhile, as that of a running request does: what was appended since is not
    part of the view.
    """

    __slots__ = ("_drafted", "_length", "_text")

    def __init__(
        self, text: Sequence[int], drafted: Sequence[int] = (), length: int | None = None
    ) -> None:
        """``length`` tokens of ``text``; None: all that it has now."""
        self._text, self._drafted = text, drafted
        self._length = len(text) if length is None else length

    def __len__(self) -> int:
        return self._length + len(self._drafted)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> list[int]: ...

    def __getitem__(self, index: int | slice) -> int | list[int]:
        n = self._length
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return [self[i] for i in range(start, stop, step)]
            found = [*self._text[start : min(stop, n)]]
            found += self._drafted[max(start - n, 0) : max(stop - n, 0)]
            return found
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._text[index] if index < n else self._drafted[index - n]
