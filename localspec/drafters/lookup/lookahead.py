"""Lookahead decoding: the target's own parallel guesses, without any draft model.

The target guesses ahead by Jacobi iteration: a window of W places is filled with tokens, all places
are computed in one pass as if the tokens before them were right, and the answers fill the window
for the next pass. What the places went through over D passes are n-grams that the target itself
wrote; they go into a pool, and those that begin with the pending token are drafted.

Both branches are paths of one draft tree. The window's level 0 is a chain after the pending token;
at each of its places hangs a column of the D - 1 tokens that this place went through later. The
logits after a column's last token are its next guess. The window is verified like every other
draft, so a correct guess is accepted at once.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localspec.core.media_rows import is_row
from localspec.core.plan import Evidence
from localspec.core.values import ROOT, Draft, Logits, Proposal, no_draft
from localspec.drafters.base import Ask, Committed, Drafter
from localspec.drafters.lookup.common import LookupTexts

Gram = tuple[int, ...]
"""The tokens after the first one."""


class NgramPool:
    """The n-grams of one text: at most ``tokens`` first tokens times ``each`` continuations."""

    def __init__(self, tokens: int = 2048, each: int = 16) -> None:
        self._most_tokens = tokens
        self._each = each
        self._grams: OrderedDict[int, list[Gram]] = OrderedDict()
        """Least recently used first token first; continuations oldest first."""

    def __len__(self) -> int:
        return sum(len(grams) for grams in self._grams.values())

    def add(self, token: int, gram: Gram) -> None:
        """Add ``gram`` after ``token``, or make it the newest."""
        grams = self._grams.setdefault(token, [])
        if gram in grams:
            grams.remove(gram)
        elif len(grams) == self._each:
            del grams[0]
        grams.append(gram)
        self._grams.move_to_end(token)
        if len(self._grams) > self._most_tokens:
            self._grams.popitem(last=False)

    def after(self, token: int, most: int) -> list[Gram]:
        """At most ``most`` continuations, the newest first."""
        if most <= 0 or token not in self._grams:
            return []
        self._grams.move_to_end(token)
        return self._grams[token][: -most - 1 : -1]


_DEEPEST = 4
"""Tokens of an n-gram after its first: N = 5 in the paper."""
_SHALLOWEST = 2
_CANDIDATES = 0.4
"""Share of the leaves that are n-grams from the pool: the paper has as many as columns, and ends
them as soon as they miss; here they share their beginnings."""
_PRIOR = (1.0, 2.0)
"""(Accepted, judged) tokens of a level before any was judged."""
_DECAY = 0.95


@dataclass(frozen=True, slots=True)
class _Shape:
    """The dimensions of window and pool."""

    depth: int
    """D: tokens of an n-gram after its first, and levels of the window."""
    columns: int
    """W."""
    candidates: int
    """G."""


@dataclass(slots=True)
class _Trie:
    """Paths as one tree: what they share is computed once."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    _nodes: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, path: Sequence[int], node: int = ROOT) -> int:
        """Let a path begin below ``node``; the node it ends in."""
        for token in path:
            key = node, token
            if key not in self._nodes:
                self._nodes[key] = len(self.tokens)
                self.tokens.append(token)
                self.parents.append(node)
            node = self._nodes[key]
        return node

    def child(self, node: int, token: int) -> int | None:
        return self._nodes.get((node, token))


@dataclass(slots=True)
class _Waiting:
    """A draft to be compared with the emitted tokens."""

    draft: Draft | None
    trie: _Trie
    ends: list[int]
    """Last node of every column."""
    confidences: list[float]

    def ends_in(self, draft: Draft) -> list[int | None]:
        """Last node of every column in the draft that was verified; None: a grammar has cut it."""
        if draft is self.draft:
            return [*self.ends]
        below = {ROOT: ROOT}
        """Node of the trie for a node of the draft."""
        for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            above = below.get(int(parent))
            found = None if above is None else self.trie.child(above, int(token))
            if found is not None:  # else the grammar has put it there
                below[node] = found
        kept = {of_trie: node for node, of_trie in below.items()}
        return [kept.get(end) for end in self.ends]


@dataclass(slots=True)
class _Text:
    """The state of one request."""

    of: Sequence[int]
    pool: NgramPool = field(default_factory=NgramPool)
    window: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 0), np.int32))
    """(D, W); level 0, column 0 is the pending token."""
    waiting: _Waiting | None = None


class Lookahead(Drafter):
    """Drafts n-grams that the target guessed in parallel (Fu et al. 2024, "Lookahead decoding").

    The window's guesses are the best tokens of the target's logits, fixed given what was computed
    before, so that the draft is DETERMINISTIC and every verifier is exact for it at any
    temperature. It needs a target that scores trees: with a single leaf nothing is drafted.
    """

    name = "lookahead"

    def __init__(self) -> None:
        self._texts: dict[int, _Text] = {}
        self._accepted = np.full(_DEEPEST, _PRIOR[0])
        self._judged = np.full(_DEEPEST, _PRIOR[1])

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """The pool's n-grams after the pending token and the window, for a single ask: a target
        scores no trees of several requests in one pass.
        """
        if len(asks) > 1:
            return [no_draft(self.name) for _ in asks]
        return [self._one(ask) for ask in asks]

    def commit(self, committed: Sequence[Committed]) -> list[Evidence]:
        """Read the window's next guesses from the logits; how the levels of the last tree did."""
        evidence: list[Evidence] = []
        for item in committed:
            text = self._texts.get(item.seq)
            if text is None or text.of is not item.all_tokens:
                self.close(item.seq)  # another request: nothing of it may be drafted here
                continue
            waiting, text.waiting = text.waiting, None
            if waiting is None:
                continue
            evidence += self._judge(waiting, item)
            draft, new = item.draft, item.new_tokens
            if waiting.draft is None or draft is None or draft.source != self.name or not new:
                continue
            assert item.logits is not None
            _advance(text, waiting.ends_in(draft), item.logits, new)
        return evidence

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        self._texts.pop(seq, None)

    # -- drafting ------------------------------------------------------------------------------

    def _one(self, ask: Ask) -> Draft:
        shape = _shape(ask.budget.nodes, ask.budget.depth, ask.budget.leaves)
        if shape is None:
            return no_draft(self.name)
        start = time.perf_counter()
        text = self._texts.get(ask.seq)
        if text is None or text.of is not ask.tokens:
            text = self._texts[ask.seq] = _Text(ask.tokens)
        pending = ask.tokens[-1]
        window = text.window = _fitted(text.window, shape, ask.tokens)
        trie = _Trie()
        for gram in text.pool.after(pending, shape.candidates):
            trie.add(gram[: shape.depth])
        trunk, ends = ROOT, []
        for column in range(shape.columns):
            if column:
                trunk = trie.add([int(window[0, column])], trunk)
            ends.append(trie.add(window[1:, column].tolist(), trunk))
        confidences: list[float] = []
        for level in range(shape.depth):
            confidences.append(float(self._accepted[level] / self._judged[level]))
            if not ask.pace.more(confidences):
                break
        else:
            draft = Draft(
                tokens=np.array(trie.tokens, np.int32),
                parents=np.array(trie.parents, np.int32),
                proposal=Proposal.DETERMINISTIC,
                probs=None,
                source=self.name,
                seconds=time.perf_counter() - start,
                considered=shape.depth,
            )
            text.waiting = _Waiting(draft, trie, ends, confidences)
            return draft
        # Half a window is useless, so it is refused as a whole; that too brings evidence.
        text.waiting = _Waiting(None, trie, ends, confidences)
        return no_draft(self.name, time.perf_counter() - start, len(confidences))

    def _judge(self, waiting: _Waiting, committed: Committed) -> list[Evidence]:
        """Evidence on each level: whether it contains the emitted token."""
        found: list[Evidence] = []
        node = ROOT
        for level, confidence in enumerate(waiting.confidences[: len(committed.new_tokens)]):
            below = waiting.trie.child(node, committed.new_tokens[level])
            accepted = below is not None
            if level not in committed.forced:
                found.append(Evidence(committed.seq, self.name, confidence, accepted))
                self._accepted[level] = _DECAY * self._accepted[level] + accepted
                self._judged[level] = _DECAY * self._judged[level] + 1
            if below is None:
                break
            node = below
        return found


def _shape(nodes: int, depth: int, leaves: int) -> _Shape | None:
    """The largest window and pool that a budget has room for; None where there is none for two
    columns and one n-gram.

    The window has W - 1 nodes in its level 0 and W * (D - 1) below; an n-gram has D. The last
    column ends W - 1 + D - 1 deep.
    """
    for d in range(min(_DEEPEST, depth), _SHALLOWEST - 1, -1):
        paths = min(leaves, (nodes + 1) // d)
        candidates = max(1, round(paths * _CANDIDATES))
        columns = min(paths - candidates, depth - d + 2)
        if columns >= 2 and (columns >= d or d == _SHALLOWEST):
            return _Shape(d, columns, candidates)
    return None


def _fitted(window: NDArray[np.int32], shape: _Shape, tokens: Sequence[int]) -> NDArray[np.int32]:
    """The window in this shape. New places begin with tokens of the text: any would do, but those
    may come again.
    """
    fitted = np.empty((shape.depth, shape.columns), np.int32)
    text = [token for token in tokens[-(shape.depth + shape.columns) :] if not is_row(token)]
    for level in range(shape.depth):
        for column in range(shape.columns):
            fitted[level, column] = text[-1 - (level + column) % len(text)]
    d, w = min(shape.depth, window.shape[0]), min(shape.columns, window.shape[1])
    fitted[:d, :w] = window[:d, :w]
    fitted[0, 0] = tokens[-1]
    return fitted


def _advance(
    text: _Text, ends: Sequence[int | None], logits: Logits, emitted: Sequence[int]
) -> None:
    """Take the columns' n-grams into the pool, and advance one level and the emitted places.
    Columns that were not computed go on with emitted tokens.
    """
    window = text.window
    guesses = np.empty(len(ends), np.int32)
    for column, end in enumerate(ends):
        if end is None:
            guesses[column] = emitted[-1 - column % len(emitted)]
            continue
        guesses[column] = guess = int(np.argmax(logits[1 + end]))
        first, *rest = window[:, column].tolist()
        text.pool.add(first, (*rest, guess))
    # A level up is a place further, so that one emitted token leaves the columns where they are.
    text.window = np.roll(np.vstack([window[1:], guesses]), 1 - len(emitted), axis=1)


def open_drafter(texts: LookupTexts) -> Lookahead:
    """Open it; its n-grams are the target's own, so that it reads no other text."""
    del texts
    return Lookahead()
