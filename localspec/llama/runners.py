"""The seams of the loop on llama.cpp: a target that scores chains, and a draft model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.errors import ContextFullError, DecodeError
from localspec.llama.context import Context
from localspec.llama.tree import Tree, tree_of
from localspec.loop import Work
from localspec.values import Logits, Scores, Tokens


class LlamaTarget:
    """A `Target`: the only owner of the target's KV cache."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._base: dict[int, int] = {}
        self._trees: dict[int, Tree] = {}
        """Scored, and not decided yet."""

    @property
    def leaves(self) -> int:
        """Leaves of a draft tree that it can score."""
        return 1 + self._context.branches

    @property
    def capacity(self) -> int:
        """Tokens that one sequence may hold."""
        return self._context.capacity

    def read(
        self, seq: int, tokens: Tokens, on_progress: Callable[[int], None] | None = None
    ) -> None:
        """Append a prompt (less its last token, which is to be pending)."""
        self._context.read(seq, tokens, on_progress)

    def score(self, work: Sequence[Work]) -> list[Scores]:
        """One pass over the pending tokens and drafts; if it raises, the cache is as before.

        Raises:
            DecodeError: a tree that this context has no room for.
        """
        passes = []
        for w in work:
            self._base[w.seq] = self.length(w.seq)
            if not w.draft.is_chain:
                if len(work) > 1 or w.seq != 0:
                    raise DecodeError(f"drafter {w.draft.source!r} proposed a tree for a batch")
                tree = tree_of(w.draft)
                if len(tree.leaves) > self.leaves:
                    raise DecodeError(
                        f"drafter {w.draft.source!r} proposed a tree of {len(tree.leaves)} leaves, "
                        f"and this context scores {self.leaves}"
                    )
                self._trees[w.seq] = tree
                return [Scores(self._context.forward_tree(w.pending, tree))]
            tokens = [w.pending, *w.draft.tokens.tolist()]
            passes.append((w.seq, tokens, len(tokens)))
        return [Scores(rows) for rows in self._context.forward(passes)]

    def keep(self, seq: int, path: Sequence[int]) -> None:
        """Keep the pending token and the accepted run."""
        tree = self._trees.pop(seq, None)
        if tree is not None:
            self._context.keep(self._base[seq], tree, path)
        else:
            self._context.truncate(seq, self._base[seq] + 1 + len(path))

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence, for the next turn's prefix."""
        tree = self._trees.pop(seq, None)
        if tree is not None:  # scored, and never decided
            self._context.keep(self._base[seq], tree, ())
        self._context.truncate(seq, length)

    def length(self, seq: int) -> int:
        """Tokens of the sequence in the KV cache, as llama.cpp itself has it."""
        return self._context.length(seq)

    def state(self, seq: int) -> memoryview:
        """The sequence's part of the KV cache."""
        return self._context.state(seq)

    def state_size(self, seq: int) -> int:
        """Bytes of it."""
        return self._context.state_size(seq)

    def restore(self, seq: int, state: bytearray) -> None:
        """Put one in its place.

        Raises:
            DecodeError: it is damaged or of another setting; the sequence is then empty.
        """
        self._context.restore(seq, state)


class LlamaDraftModel:
    """A `DraftModel`; rows are cut to the ids that the target knows too."""

    def __init__(self, context: Context, target_vocab: int) -> None:
        self._context = context
        self.vocabulary = min(context.model.n_vocab, target_vocab)

    @property
    def capacity(self) -> int:
        """Tokens that one sequence may hold."""
        return self._context.capacity

    def extend(self, work: Sequence[tuple[int, Tokens, int]]) -> list[Logits]:
        """Append tokens; (rows, V) logits after the last ``rows`` tokens of each. If it raises,
        nothing was added.

        Raises:
            ContextFullError, Interrupted, DecodeError
        """
        before = [(seq, self._context.length(seq)) for seq, _, _ in work]
        for (_, length), (_, tokens, _) in zip(before, work, strict=True):
            if length + len(tokens) > self._context.capacity:  # before most of it is read in vain
                raise ContextFullError("the draft model's context is full")
        room = self._context.n_batch // len(work)
        try:
            last = []
            for seq, tokens, rows in work:
                surplus = max(0, len(tokens) - room)
                if surplus:
                    self._context.read(seq, tokens[:surplus])
                last.append((seq, tokens[surplus:], rows))
            found = self._context.forward(last)
        except BaseException:
            for seq, length in before:
                self._context.truncate(seq, length)
            raise
        return [rows[:, : self.vocabulary] for rows in found]

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence."""
        self._context.truncate(seq, length)
