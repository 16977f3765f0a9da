"""A llama.cpp context: KV cache and compute buffers of one model."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from localspec.core import kernel
from localspec.core.adapter_list import Blend
from localspec.core.errors import (
    ContextFullError,
    Interrupted,
    LocalspecError,
    PassRefusedError,
    UsageError,
)
from localspec.core.processes.activity import doing
from localspec.core.values import Extension, Logits, Tokens
from localspec.llama.batch import Batch, LastLogits, StopFlag, batches_of_states
from localspec.llama.devices import accelerators, backend, has_matrix_library
from localspec.llama.library import c_api
from localspec.llama.limits import HANDED_OVER, KV_TYPES, context_params, decode_error, make_context
from localspec.llama.model import Model
from localspec.llama.projector import Piece
from localspec.llama.sequences import Sequences, Span
from localspec.llama.team import team
from localspec.llama.tree_layout import Tree
from localspec.models.gguf.sizes import OUTPUTS

_NEVER = c_api.ggml_abort_callback()
"""Lets passes run to their end."""


class Context(Sequences):
    """Sequences in a KV cache, extended by passes of the model at their ends."""

    least_rows = 1
    """Rows of a sequence in any pass."""

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int,
        n_seq: int = 1,
        branches: int = 0,
        rollback: int = 0,
        n_batch: int = 512,
        threads: int,
        kv_type: str = "f16",
        stop: StopFlag | None = None,
    ) -> None:
        """``n_ctx`` tokens for each of ``n_seq`` sequences, fewer where the model has positions for
        fewer; ``stop`` aborts a running pass.

        With ``branches``, sequence 0 can be extended by trees of that many leaves beyond the first;
        ``n_seq`` is then 1. With ``rollback``, a recurrent state can be taken back by that many
        tokens, if llama.cpp can do that for the architecture.

        Raises:
            UsageError: unknown KV type.
            OutOfMemoryError: the cache or the compute buffers do not fit.
        """
        if kv_type not in KV_TYPES:
            raise UsageError(f"no KV type {kv_type!r}; there are: {', '.join(KV_TYPES)}")
        most = model.positions
        n_ctx = n_ctx if most is None else min(n_ctx, most)
        doing(f"making a context of {n_ctx} tokens for {model.path}")
        self.model = model
        self.stop = stop or StopFlag()
        params = context_params(
            model,
            n_ctx=n_ctx,
            n_seq=n_seq,
            branches=branches,
            rollback=rollback,
            n_batch=n_batch,
            threads=threads,
            kv_type=kv_type,
        )
        self._outputs = int(params.n_outputs_max)
        self._adjust(params)
        made = make_context(model, params, n_ctx)
        self._ptr, self.flash_attention = made.pointer, made.flash_attention
        self.graph_splits = made.graph_splits
        c_api.llama_set_abort_callback(self._ptr, self.stop.callback, self.stop.data)
        back = None if model.partial_removal else int(c_api.llama_n_rs_seq(self._ptr))
        super().__init__(c_api.llama_get_memory(self._ptr), model, n_seq, branches, back)
        # llama.cpp makes batches smaller and contexts larger than asked for; larger than a model
        # was trained for is no gain, and it aborts the process on a batch that is too large.
        self.n_batch = min(n_batch, int(c_api.llama_n_batch(self._ptr)))
        self._batch = Batch(self.n_batch, 1 + branches)
        self._logits = LastLogits(self._ptr, model)
        self.capacity = self._room = min(n_ctx, int(c_api.llama_n_ctx_seq(self._ptr)))
        self.threads = threads
        self._row_kernel = kernel.loaded()
        self._team = None if self.on_device else team(threads)
        """Threads that wait for more work after a pass."""
        self.kv_type = kv_type
        self._keeps_states = False
        self._submitting, self._submitted = 0.0, 0.0
        """Seconds of the last `llama_decode`, and when it returned."""
        self.overlaps = False
        """Whether most of the last pass with rows was still to be computed when `llama_decode`
        returned. It is measured, since it differs by backend and by the places of layers.
        """
        self._blend = model.adapters.usual
        self.meanwhile: Callable[[], None] | None = None
        """Work to be done once, when the next pass was submitted and before its rows are there."""

    def _adjust(self, params: Any) -> None:
        """Change the parameters, for contexts of another kind."""

    @property
    def handle(self) -> Any:
        """The llama_context pointer, for the rest of this package."""
        return self._ptr

    def close(self) -> None:
        """Free it. May be called twice."""
        if self._ptr:
            with self.model.waiting():
                c_api.llama_free(self._ptr)
            self._ptr = None

    @property
    def on_device(self) -> bool:
        """Whether layers of the model may be computed by something else than the processor."""
        return self.model.offloads and (backend() != "cpu" or self.model.remote is not None)

    @property
    def widest(self) -> int:
        """Rows of a sequence in a pass at most: below the width from which on weights on the host
        are computed with elsewhere, slowly or with other rounding.
        """
        elsewhere = self.model.on_host and (self.on_device or has_matrix_library())
        return HANDED_OVER - 1 if elsewhere else OUTPUTS

    @property
    def leaves_device(self) -> bool:
        """Whether all layers are on devices, and parts of every pass are computed by the processor
        all the same, because a device lacks an operation: the embedding alone is one split.
        """
        whole = self.on_device and not self.model.on_host
        remote = self.model.remote
        devices = len(accelerators()) + (len(remote.handles) if remote is not None else 0)
        return whole and self.graph_splits > 1 + devices

    def set_threads(self, n: int) -> None:
        """Use n threads from the next pass on."""
        self._team = None if self.on_device else team(n)
        c_api.llama_set_n_threads(self._ptr, n, n)
        self.threads = n

    def adapt(self, blend: Blend) -> None:
        """Compute with these adapters from the next pass on."""
        if blend is not self._blend and blend != self._blend:
            self.model.adapters.use(self._ptr, blend)
            self._blend = blend

    @property
    def outputs(self) -> int:
        """Rows that a pass may have, see `forward`."""
        return self._outputs

    def forward(
        self,
        work: Sequence[Extension],
        *,
        states: bool = False,
        padding: Sequence[int] = (),
    ) -> list[Logits]:
        """Append tokens to sequences in one pass, in the order of their streams.

        ``padding`` are rows to be appended behind each, see `localspec.llama.pass_layout`: they are
        in the cache too, until they are truncated.
        Returns (rows, V) views for each, overwritten by the next pass. If it raises, nothing
        was appended. A recurrent model has then forgotten the whole sequence, so the passes that
        decode are not stopped: those with outputs, and short ones without.

        With ``states``, llama.cpp keeps the final hidden states of all tokens, see
        `localspec.llama.heads.hidden_states`; each of them is then one of the rows that it makes.

        Raises:
            ContextFullError, Interrupted, DecodeError
        """
        batch, n = self._batch, 0
        needed = [len(tokens) for _, tokens, _ in work]
        counts = [n + more for n, more in zip_longest(needed, padding, fillvalue=0)]
        for (seq, tokens, outputs), count in zip(work, counts, strict=True):
            end = n + count
            if end > batch.capacity:
                raise PassRefusedError(
                    f"a pass of {end} tokens; this context takes {batch.capacity}"
                )
            start = self._lengths[seq]
            if start + count > self._room:
                raise ContextFullError
            place = self.place(seq, start)
            batch.place(n, self._streams[seq], place, tokens, outputs, count - len(tokens))
            n = end
        rows = sum(outputs for _, _, outputs in work)
        every = states or (rows > 0 and self.model.gives_every_row)
        if every:
            batch.outputs[:n] = 1
        try:
            self._decode(n, n if every else rows, states)
        except PassRefusedError:
            raise
        except LocalspecError:
            self._undo(seq for seq, _, _ in work)
            raise
        for (seq, _, _), count in zip(work, counts, strict=True):
            self._lengths[seq] += count
            self._revocable[seq] = count - 1
        if every:
            views = self._rows(counts)
            return [r[e - w[2] : e] for r, e, w in zip(views, needed, work, strict=True)]
        return self._rows([outputs for _, _, outputs in work])

    def _rows(self, counts: Sequence[int]) -> list[Logits]:
        """The rows of the pass that was submitted, once they are computed."""
        work, self.meanwhile = self.meanwhile, None
        if work is not None:
            work()
        views = self._logits.views(counts)
        if any(counts):
            waited = time.perf_counter() - self._submitted
            self.overlaps = waited > self._submitting and self.on_device
        return views

    def _decode(self, n: int, outputs: int, states: bool = False) -> None:
        """The first n tokens of the batch."""
        batch = self._batch
        tokens = batch.tokens[:n].tolist()
        if n and not (min(tokens) >= 0 and max(tokens) < self.model.n_vocab):
            raise PassRefusedError(f"a token outside the vocabulary of {self.model.n_vocab}")
        if outputs > self._outputs:
            raise PassRefusedError(f"a pass with more than {self._outputs} rows of logits")
        if states is not self._keeps_states:
            # llama.cpp then makes an output of every token, whatever the batch says.
            c_api.llama_set_embeddings(self._ptr, states)
            self._keeps_states = states
        self._submit(batch, n, outputs)

    def _submit(self, batch: Batch, n: int, outputs: int) -> None:
        """A pass over the first n rows of a batch, of which so many yield logits."""
        # A stopped pass leaves a recurrent state halfway, and llama.cpp would go on from there.
        whole = self.rollback is not None and (outputs > 0 or n <= OUTPUTS)
        if whole:
            c_api.llama_set_abort_callback(self._ptr, _NEVER, None)
        began = time.perf_counter()
        with self.model.waiting(n):
            error = decode_error(c_api.llama_decode(self._ptr, batch.first(n)))
        self._submitted = time.perf_counter()
        self._submitting = self._submitted - began
        if whole:
            c_api.llama_set_abort_callback(self._ptr, self.stop.callback, self.stop.data)
        if error is not None:
            raise error
        if self._row_kernel is not None:
            self._row_kernel.meet(self._team)

    def forward_tree(self, stem: Tokens, tree: Tree, *, states: bool = False) -> Logits:
        """Append tokens to sequence 0 and a tree after them, in one pass.

        Returns (1 + n, V) rows, the first one after the stem. Until `truncate` is called, nothing
        else may be done: it takes sequence 0 back to the stem, or to a part of the tree's first
        path. If it raises, nothing was appended. ``states`` is as in `forward`.

        Raises:
            ContextFullError, Interrupted, DecodeError
        """
        batch, start, m = self._batch, self._lengths[0], len(stem)
        base, n = start + m, m + len(tree.tokens)
        if len(tree.leaves) > 1 + self.branches or n > batch.capacity:
            raise PassRefusedError(
                f"a tree of {n} tokens with {len(tree.leaves)} leaves is too large"
            )
        if base + tree.depth > self.capacity:
            raise ContextFullError
        self._branches.place(batch, tree, start, m)
        batch.tokens[:m], batch.tokens[m:n] = stem, tree.tokens
        place = self.place(0, start)
        batch.positions[:m] = np.arange(place, place + m)
        batch.positions[m:n] = place + m + tree.depths
        every = states or self.model.gives_every_row
        batch.outputs[: m - 1], batch.outputs[m - 1 : n] = every, 1
        try:
            self._decode(n, n if every else n - m + 1, states)
        except LocalspecError:
            self._lengths[0] = start + n
            self.truncate(0, start)
            raise
        self._lengths[0] = start + n  # an upper bound, until it is known what stays
        return self._rows([n])[0][m - 1 :] if every else self._rows([n - m + 1])[0]

    def picture_passes(self, seq: int, piece: Piece, most: int) -> Generator[None, None, None]:
        """Append the rows of a picture, without logits, in passes of ``most`` rows where they need
        not be in one. After each but the last one it yields: other sequences may be computed with.
        Until it ends, the sequence is in `unfinished` and has its old length; closed before, or if
        it raises, nothing was appended.

        Raises:
            ContextFullError, Interrupted, DecodeError
        """
        start, rows = self._lengths[seq], piece.rows
        if start + rows > self._room:
            raise ContextFullError
        if not piece.causal and rows > self.n_batch:
            raise PassRefusedError(
                f"a picture of {rows} rows that see each other; a pass has {self.n_batch} at most"
            )
        places = piece.places(self.place(seq, start))[: piece.dimensions]
        at_once = min(most, self.n_batch) if piece.causal else rows
        batches = batches_of_states(piece.embeddings(), places, self._streams[seq], at_once)
        try:
            for batch, n in batches:
                if seq in self.unfinished:
                    yield
                self._append_rows(batch, n, causal=piece.causal)
                self.unfinished.add(seq)
        except BaseException:
            if self._ptr:
                self._undo([seq])
            raise
        finally:
            self.unfinished.discard(seq)
        if piece.positions != rows:
            self.spans[seq].append(Span(start, rows, piece.positions))
        self._lengths[seq] += rows
        self._revocable[seq] = 0

    def _append_rows(self, batch: Batch, n: int, *, causal: bool) -> None:
        if self._keeps_states:
            c_api.llama_set_embeddings(self._ptr, False)
            self._keeps_states = False
        try:
            c_api.llama_set_causal_attn(self._ptr, causal)
            self._submit(batch, n, 0)
        finally:
            c_api.llama_set_causal_attn(self._ptr, True)

    def read(
        self, seq: int, tokens: Tokens, on_progress: Callable[[int], None] | None = None
    ) -> None:
        """Append a long run of tokens without logits, in passes of ``n_batch``.

        ``on_progress`` is told the tokens appended so far. If it raises, whole passes done
        before stay in the cache (see ``length``).

        Raises:
            ContextFullError, Interrupted, DecodeError
        """
        for at in range(0, len(tokens), self.n_batch):
            if at and self.stop.is_set():  # a pass on a device does not look at it
                raise Interrupted("interrupted")
            part = tokens[at : at + self.n_batch]
            self.forward([(seq, part, 0)])
            if on_progress is not None:
                on_progress(at + len(part))
