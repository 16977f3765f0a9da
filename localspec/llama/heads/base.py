"""Heads that llama.cpp computes: layers that read a token and a hidden state of the target.

Both kinds are contexts with a KV cache of one layer. At position i they read the token at i + 1 and
the target's state of the token at i, and guess the token at i + 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from localspec.core.errors import ContextFullError, DecodeError, LocalspecError
from localspec.core.values import Extension, Logits, Tokens
from localspec.llama import experimental
from localspec.llama.batch import Batch, StopFlag
from localspec.llama.context import Context
from localspec.llama.heads.hidden_states import States
from localspec.llama.heads.tree_sequences import TreeSequences
from localspec.llama.library import c_api
from localspec.llama.limits import decode_error
from localspec.llama.model import Model
from localspec.models.gguf.sizes import OUTPUTS

Pairs = tuple[int, int, Tokens, States]
"""Pairs of a sequence: its number, the position of the first, tokens, states."""


class Head(Context):
    """A context of pairs, each a token and a state."""

    what = "a drafting head"
    context_type = 0
    grows = True
    """Whether trees of guesses can grow on its pairs."""

    def __init__(
        self,
        model: Model,
        target: Context,
        *,
        n_ctx: int,
        n_seq: int = 1,
        branches: int = 0,
        n_batch: int,
        threads: int,
        kv_type: str = "f16",
        stop: StopFlag | None = None,
    ) -> None:
        """``target`` provides what the head's own file lacks, and must be closed after the head.

        With ``branches``, trees with that many pairs at one position beyond the first can `grow` on
        sequence 0; ``n_seq`` is then 1.

        Raises:
            UnsupportedModelError: this build of llama.cpp cannot do it.
            UsageError, OutOfMemoryError: as `Context`.
        """
        self._calls = experimental.required(self.what)
        self._other = target
        super().__init__(
            model,
            n_ctx=n_ctx,
            n_seq=n_seq,
            branches=branches if self.grows else 0,
            n_batch=n_batch,
            threads=threads,
            kv_type=kv_type,
            stop=stop,
        )
        self._tree_sequences = TreeSequences(self._memory, self.branches)
        self.width = self._width()
        """Numbers of a state that a pair is made of."""
        self._batch = Batch(self.n_batch, states=self.width)
        self._calls.set_nextn(self.handle, True, not self._all_states)
        self.rollback = None  # its one layer is attention, whatever the target's are
        self.window = 0  # where its cache begins late it drafts worse, never wrongly

    def _adjust(self, params: Any) -> None:
        params.ctx_type = self.context_type
        params.ctx_other = self._other.handle

    @property
    def _all_states(self) -> bool:
        """Whether a pass gives the states of all rows together with the logits of some."""
        return False

    def _width(self) -> int:
        return int(c_api.llama_model_n_embd(self.model.handle))

    def fuse(self, states: States) -> States:
        """(n, width) states for pairs, of (n, width of the tap) hidden states of the target."""
        return states

    def forward(
        self,
        work: Sequence[Extension],
        *,
        states: bool = False,
        padding: Sequence[int] = (),
    ) -> list[Logits]:
        """`Context.forward` with states of zeros, for measuring what a pass costs."""
        del states, padding
        return [
            self.extend(
                seq,
                self._lengths[seq],
                tokens,
                np.zeros((len(tokens), self.width), np.float32),
                outputs,
            )[0]
            for seq, tokens, outputs in work
        ]

    @property
    def depth(self) -> int | None:
        """Tokens that it can guess after the last pair of the target's own states; None: any."""
        return None

    def guess(self, seq: int, position: int, token: int, state: States) -> tuple[Logits, States]:
        """Append a pair with a (width,) state that the head guessed; (1, V) and (1, width), as
        `extend`, and raises what that does.
        """
        return self.extend(seq, position, (token,), state[None], 1)

    def extend(
        self, seq: int, position: int, tokens: Tokens, states: States, outputs: int
    ) -> tuple[Logits, States]:
        """Append pairs from ``position`` on, at the sequence's end or anywhere if it is empty.

        Returns (outputs, V) logits after the last ones, and (outputs, width) the head's own guess
        of the target's states there; both are views, overwritten by the next pass. If it raises,
        nothing was appended.

        Raises:
            ContextFullError, Interrupted, DecodeError
        """
        surplus = max(0, len(tokens) - self._outputs) if outputs else 0
        if surplus:
            self._append([(seq, position, tokens[:surplus], states[:surplus])], 0)
        try:
            logits, own = self._append(
                [(seq, position + surplus, tokens[surplus:], states[surplus:])], outputs
            )
        except LocalspecError:
            if surplus:
                self.truncate(seq, position)
            raise
        return logits[len(logits) - outputs :], own[len(own) - outputs :]

    @property
    def together(self) -> int:
        """Pairs that `extend_together` takes; 0 where every sequence needs passes of its own."""
        return min(self.n_batch, self._outputs)

    def extend_together(self, work: Sequence[Pairs]) -> tuple[Logits, States]:
        """Append pairs of several sequences in one pass, in the order of their ids.

        Returns (n, V) logits after the last pair of each, and (n, width) the head's own guess of
        the target's states there; both are overwritten by the next pass. If it raises, nothing was
        appended.

        Raises:
            ContextFullError, Interrupted, DecodeError
        """
        logits, own = self._append(work, 1)
        last = np.cumsum([len(tokens) for _, _, tokens, _ in work]) - 1
        return (logits if self._all_states else logits[last]), own[last]

    def _append(self, work: Sequence[Pairs], outputs: int) -> tuple[Logits, States]:
        """Append pairs in one pass, of which the last ``outputs`` of each sequence are asked for.

        Returns their logits, or those of all pairs, and the states of all; none without outputs.
        Many of the graphs compute the states of all rows: where logits of only some are asked for,
        llama.cpp gives the states of the first rows instead of those.
        """
        batch, n = self._batch, 0
        for seq, position, tokens, states in work:
            end = n + len(tokens)
            if self._lengths[seq] == 0:
                self._lengths[seq] = position
            if self._lengths[seq] != position or end > batch.capacity:
                raise DecodeError(f"{end} pairs at {position}, after {self._lengths[seq]}")
            if position + len(tokens) > self.capacity:
                raise ContextFullError("the head's context is full")
            flagged = outputs if self._all_states or not outputs else len(tokens)
            batch.place(n, seq, position, tokens, flagged)
            batch.states[n:end] = states
            n = end
        rows = outputs * len(work) if self._all_states or not outputs else n
        try:
            self._decode(n, rows)
        except LocalspecError:
            self._undo([seq for seq, *_ in work])
            raise
        for seq, _, tokens, _ in work:
            self._lengths[seq] += len(tokens)
        (logits,) = self._logits.views([rows])
        return logits, self._own(n) if outputs else np.empty((0, self.width), np.float32)

    def _undo(self, seqs: Iterable[int]) -> None:
        """See `Context`; what is empty afterwards may begin elsewhere the next time."""
        for seq in seqs:
            super()._undo([seq])
            if self.length(seq) == 0:
                self._lengths[seq] = 0

    def _own(self, rows: int) -> States:
        """States that the last pass guessed."""
        return np.ctypeslib.as_array(self._calls.get_nextn(self.handle), (rows, self.width))

    def grow(self, tokens: Tokens, states: States, above: Sequence[int]) -> tuple[Logits, States]:
        """Append a level of a tree to sequence 0: several pairs at one position.

        ``above`` are the numbers of those pairs of the level before that they follow; of the first
        level all follow the sequence's last pair, number 0. Returns (n, V) and (n, width) views as
        `extend`. Until `prune` is called, nothing else may be done. If it raises, the tree is gone.

        Raises:
            ContextFullError, Interrupted, DecodeError
        """
        n, batch, base = len(tokens), self._batch, self._lengths[0]
        if not n <= 1 + self.branches:
            raise DecodeError(f"{n} pairs at one position; this head takes {1 + self.branches}")
        if base + self._tree_sequences.depth >= self.capacity:
            raise ContextFullError("the head's context is full")
        for branch in range(n - 1):
            self._branches.share(branch, base)
        batch.tokens[:n], batch.states[:n] = tokens, states
        batch.positions[:n] = base + self._tree_sequences.depth
        batch.seqs[:n, 0], batch.seq_counts[:n] = self._tree_sequences.sprout(base, above), 1
        batch.outputs[:n] = 1
        try:
            self._decode(n, n)
        except LocalspecError:
            self.prune()
            raise
        return self._logits.views([n])[0], self._own(n)

    def prune(self) -> None:
        """Forget the tree, if there is one."""
        self._tree_sequences.cut(self._lengths[0])


class Eagle(Head):
    """An EAGLE-3 head (Li et al. 2025): one layer over the target's states of three depths."""

    what = "an EAGLE-3 head"

    def __init__(self, model: Model, target: Context, **settings: Any) -> None:
        """See `Head`; passes are of no more pairs than can have logits."""
        super().__init__(model, target, **{**settings, "n_batch": OUTPUTS})
        self._inputs: Batch | None = None

    def fuse(self, states: States) -> States:
        """The head's fusion of three depths into one state (section 3.1, "g")."""
        return np.concatenate(
            [
                self._fused(states[at : at + self.n_batch])
                for at in range(0, len(states), self.n_batch)
            ]
        )

    def _fused(self, states: States) -> States:
        n, width = states.shape
        if self._inputs is None:
            self._inputs = Batch(self.n_batch, states=width, tokens=False)
        batch = self._inputs
        batch.states[:n] = states
        # The fusion has no positions, but llama.cpp wants the next ones.
        batch.positions[:n] = np.arange(n) + self.length(0)
        batch.seqs[:n, 0], batch.seq_counts[:n], batch.outputs[:n] = 0, 1, 1
        error = decode_error(c_api.llama_encode(self.handle, batch.first(n)))
        if error is not None:
            raise error
        return np.ctypeslib.as_array(self._calls.get_nextn(self.handle), (n, self.width)).copy()
