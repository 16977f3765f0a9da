"""Strict contexts: the same bits, however a text is cut into passes and whatever shares them.

llama.cpp chooses kernels by the number of rows in a pass, and their results differ in the last
bits. In a strict context these choices are taken away:

- no flash attention: from 64 rows on it sums in tiles;
- a stream of cells for each sequence: in a common one the cells of others lie in between, and sums
  are grouped otherwise;
- two rows of each sequence at least: products and attention over a single row round otherwise;
- no tiled products (`localspec.llama.library.untile`), which begin at a certain number of rows;
- Q2_K and Q4_K weights as in the file: of repacked ones, four rows have another kernel than one.

With our own kernels none of this is needed: their sums have one order for any number of rows.

The list is measured on x86; whether it suffices on this machine is found by
`localspec.llama.self_test`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.core.values import Extension, Logits, Tokens
from localspec.llama.context import Context
from localspec.llama.library import c_api
from localspec.llama.limits import LEAST_ROWS
from localspec.llama.pass_layout import runs

_FILLER = 0
"""Token of rows of padding."""
_ROW_DEPENDENT = frozenset({10, 12})
"""ggml types whose repacked kernels depend on the number of rows, as seen on x86: Q2_K, Q4_K."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A way of computing that may be exact."""

    extra_buffers: bool
    """Whether weights may be repacked for the processor's own kernels."""
    tiled: bool
    """Whether products are tiled; True only where the process cannot change it any more."""
    own: bool = False
    """Whether our own kernels compute, in passes of any shape."""

    def describe(self) -> str:
        """The way in words, for users."""
        if self.own:
            return "own kernels, passes of any shape"
        weights = "" if self.extra_buffers else ", weights as in the file"
        products = "" if self.tiled else ", no tiled products"
        return (
            f"at least {LEAST_ROWS} rows of each sequence, no flash attention, "
            f"separate streams{products}{weights}"
        )


def recipes(types: Iterable[int], *, tiled: bool, own: bool = False) -> list[Recipe]:
    """Recipes for weights of these ggml types, the one that is likely the fastest first; ``own``
    says whether our own kernels are there.
    """
    plain = Recipe(extra_buffers=False, tiled=tiled)
    if own:
        repacked = Recipe(extra_buffers=True, tiled=tiled)
        return [Recipe(extra_buffers=True, tiled=tiled, own=True), repacked, plain]
    if _ROW_DEPENDENT.intersection(types):
        return [plain]
    return [Recipe(extra_buffers=True, tiled=tiled), plain]


class StrictContext(Context):
    """A context that computes every pass with the same kernels."""

    least_rows = LEAST_ROWS

    def __init__(self, *args: Any, **settings: Any) -> None:
        """The arguments of `Context`; the context has no branches."""
        super().__init__(*args, **settings)
        room, most = int(c_api.llama_n_ctx_seq(self.handle)), self.model.positions
        self._room = room if most is None else min(room, most)
        self.capacity = min(self.capacity, self._room - (self.least_rows - 1))

    def _adjust(self, params: Any) -> None:
        params.flash_attn_type = c_api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.kv_unified = False

    def forward(
        self,
        work: Sequence[Extension],
        *,
        states: bool = False,
        padding: Sequence[int] = (),
    ) -> list[Logits]:
        """`Context.forward`, with rows behind short runs that are removed again.

        The last layers compute outputs alone, so rows are added to a single output, too.
        """
        asked = [*padding, *[0] * (len(work) - len(padding))]
        added = [
            max(0, self.least_rows - len(tokens) - more)
            for (_, tokens, _), more in zip(work, asked, strict=True)
        ]
        too_few = self._too_few_outputs(work)
        filled: list[tuple[int, Tokens, int, int]] = []
        for (seq, tokens, n), more, own in zip(work, asked, added, strict=True):
            fillers = more + own
            if seq in too_few:
                filled.append((seq, [*tokens, *[_FILLER] * fillers], n + fillers, 0))
            else:
                filled.append((seq, tokens, n, fillers))
        rows = super().forward(
            [(seq, tokens, n) for seq, tokens, n, _ in filled],
            states=states,
            padding=[n for *_, n in filled],
        )
        for (seq, _, _), own in zip(work, added, strict=True):
            if own:
                self.truncate(seq, self._lengths[seq] - own)
        return [found[:n] for found, (_, _, n) in zip(rows, work, strict=True)]

    def _too_few_outputs(self, work: Sequence[Extension]) -> set[int]:
        """Sequences with outputs, but too few in the part of the pass that computes them: where an
        id is missing between sequences, llama.cpp computes those on either side apart.
        """
        found: set[int] = set()
        outputs = {seq: n for seq, _, n in work}
        for part in runs(sorted(outputs)):
            wanted = [seq for seq in part if outputs[seq]]
            if sum(outputs[seq] for seq in wanted) < self.least_rows:
                found.update(wanted)
        return found


class OwnStrictContext(StrictContext):
    """A context whose passes our own kernels compute: of any shape, with flash attention."""

    least_rows = 1

    def _adjust(self, params: Any) -> None:
        """Nothing has to be taken away."""


def strict_context(recipe: Recipe) -> type[StrictContext]:
    """The kind of context for a recipe."""
    return OwnStrictContext if recipe.own else StrictContext
