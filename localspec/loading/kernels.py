"""The choice of kernels for a target: those for weights in extra buffers, or the plain ones.

At load llama.cpp copies quantized weights into the order that the processor's own kernels want
(repacked weights, AMX tiles: "extra buffers"). On one processor that makes single tokens faster
and several at once slower, on another the reverse. Where a pair is loaded that drafts, both are
measured once, in turns. The kernels that promise more tokens per second with drafting are saved
for every later load of the target, whatever drafts then: logits of the two differ in the last
bits, so plain and drafted decoding must use the same kernels.

The plain kernels compute from the file as it is mapped: the second load copies nothing, and adds
only the memory of a small context to the file's pages, which the first load has just read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.core.errors import Interrupted, OutOfMemoryError
from localspec.core.files import paths
from localspec.core.files.measured import name_of, parsed, write
from localspec.core.processes import host
from localspec.core.speed_formula import best_fixed
from localspec.kernels.instruction_sets import title
from localspec.llama import library, own_kernels
from localspec.llama.adapters import facts_of
from localspec.llama.context import Context
from localspec.llama.devices import devices
from localspec.llama.model import Model
from localspec.llama.timing import compare, token_seconds
from localspec.loading.resources import Parts, unheard
from localspec.models.gguf.shards import fingerprint

SECONDS = 2.0
"""Seconds that a trial may take, the second load included."""
_LOAD_S = 1.0
"""Seconds of a trial that the second load may take."""
_FORMAT = 1
_TRIES = 3
"""Loads that found a trial too slow, after which no further trial is made."""
_LEAST_BYTES = 64 << 20
"""A smaller target is fast either way, and loading it twice would double its start."""
_LONGEST_PASS_S = 0.15
"""Seconds of a pass over one token, beyond which a trial cannot measure enough widths in time."""
_SPARE_BYTES = 512 << 20
"""Free memory beyond the file's own pages."""
_USUAL = 0.8
"""Acceptance that the comparison assumes: about that of a good draft model on chat and code."""
_MUST_GAIN = 1.05
"""The plain kernels must be this much faster: smaller gains are within measurement noise."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The choice for a target."""

    extra_buffers: bool
    why: str

    def describe(self, model: Model) -> str:
        """The kernels in use and the reason, in words for users."""
        if model.uses_own_kernels:
            kind = f"own kernels, {title(own_kernels.unit())}"
            return kind if self is OWN else f"{kind} ({self.why})"
        kind = "extra buffers" if model.uses_extra_buffers else "plain"
        return f"{kind} ({self.why})"


def _uncompared(why: str) -> Kernels:
    return Kernels(extra_buffers=True, why=f"not compared: {why}")


UNSOUND = Kernels(extra_buffers=False, why="extra buffers are unsound on this machine")
OWN = Kernels(extra_buffers=True, why="our own were compared when they were proved")
NOT_COMPARED = _uncompared("the draft length is given, or nothing drafts")


@dataclass(frozen=True, slots=True)
class Trials:
    """Makes the choice for one target as it is going to be placed, and saves it in a file."""

    parts: Parts
    """Loads it."""
    target: Path

    def bound(self) -> Kernels | None:
        """The kernels that must be used on this machine; None where there is a choice."""
        if self.parts.extra_buffers and self.parts.own.unit:
            return OWN
        return None if self.parts.extra_buffers else UNSOUND

    def known(self) -> Kernels | None:
        """The kernels that must be used or that an earlier load chose; None: to be measured."""
        return self.bound() or self._found()

    def _found(self) -> Kernels | None:
        saved = self._saved()
        return saved[0] if saved is not None and saved[1] >= _TRIES else None

    def _saved(self) -> tuple[Kernels, int] | None:
        """The choice in the file and the number of its trials; None for no or a damaged file."""
        try:
            facts = parsed(self._file)
            if facts["format"] != _FORMAT or not isinstance(facts["extra_buffers"], bool):
                return None
            return Kernels(facts["extra_buffers"], str(facts["why"])), int(facts["tries"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    def choose(
        self, context: Context, next_layers: bool, draft_bytes: int
    ) -> tuple[Kernels, Model]:
        """The choice, and the model loaded with it: that of ``context``, which uses extra buffers,
        or a second one. ``draft_bytes`` is the size of the draft, 0 where nothing computes drafts.

        Raises:
            Interrupted: loading the second model was cancelled.
        """
        began = time.perf_counter()
        extra = context.model
        if not extra.uses_extra_buffers:
            return Kernels(extra_buffers=True, why="none of its weights has others"), extra
        why = self._why_not(context)
        if why is not None:
            return _uncompared(why), extra
        if token_seconds(context, tries=2) > _LONGEST_PASS_S:
            return self._again("its passes take too long"), extra
        try:
            plain = self._loaded_plain(next_layers, began)
            if plain is None:
                return self._again("loading it a second time takes too long"), extra
            chosen = self._compared(context, plain, draft_bytes, began)
        except OutOfMemoryError:
            self._unload_all_but(extra)
            return _uncompared("too little free memory"), extra
        better = extra if chosen.extra_buffers else plain
        self._unload_all_but(better)
        return chosen, better

    def _again(self, why: str) -> Kernels:
        """Extra buffers for now. The machine may have been busy, so the next loads try again, until
        `_TRIES` of them ended so.
        """
        before = self._saved()
        return self._save(_uncompared(why), 1 + (before[1] if before is not None else 0))

    def _unload_all_but(self, better: Model) -> None:
        """Free the other one of the two models, with its contexts."""
        for part in list(self.parts.loaded):
            if isinstance(part, Model) and part.path == self.target and part is not better:
                self.parts.unload(part)

    def _why_not(self, context: Context) -> str | None:
        """Why a trial is useless or has no memory; None if it may be made."""
        model = context.model
        if model.n_bytes < _LEAST_BYTES:
            return "the target is small"
        if model.gpu_layers:
            return "some of its layers are on a GPU, which has no room for them twice"
        if _room() < model.n_bytes + _SPARE_BYTES:
            return "too little free memory"
        return None

    def _loaded_plain(self, next_layers: bool, began: float) -> Model | None:
        """The target loaded without extra buffers; None where that takes too long."""
        cancelled = self.parts.cancelled

        def late() -> bool:
            return cancelled() or time.perf_counter() - began > _LOAD_S

        # They share the list of what is loaded.
        quietly = replace(self.parts, on_event=unheard, cancelled=late)
        try:
            with library.listening():
                return quietly.model(
                    self.target,
                    self.parts.fit.target,
                    next_layers=next_layers,
                    extra_buffers=False,
                )
        except Interrupted:
            if cancelled():
                raise
            return None

    def _compared(self, context: Context, plain: Model, draft_bytes: int, began: float) -> Kernels:
        with library.listening():
            small = Context(
                plain,
                n_ctx=256,
                n_batch=64,
                threads=context.threads,
                kv_type=context.kv_type,
                stop=context.stop,
            )
        try:
            extra_s, plain_s = compare((context, small), began + SECONDS - time.perf_counter())
        finally:
            small.close()
        if len(extra_s) < 2:
            return self._again("its passes take too long")
        cost = draft_bytes / max(1, context.model.n_bytes) * min(extra_s[1], plain_s[1])
        gain = speed(plain_s, cost) / speed(extra_s, cost)
        chosen = Kernels(True, f"{1 / gain:.2f} times the speed of plain kernels, by its passes")
        if gain > _MUST_GAIN:
            why = f"{gain:.2f} times the speed with extra buffers, by its passes"
            chosen = Kernels(False, why)
        return self._save(chosen, _TRIES)

    def _save(self, chosen: Kernels, tries: int) -> Kernels:
        """The choice, saved for the next load. Where it cannot be saved, the next load measures
        again; users are told when the policy fails to save its measurements in the same folder.
        """
        facts = {
            "format": _FORMAT,
            "extra_buffers": chosen.extra_buffers,
            "why": chosen.why,
            "tries": tries,
        }
        try:
            paths.make_parent(self._file)
            write(self._file, facts)
        except OSError as error:
            library.logger.warning("the choice of kernels cannot be saved: %s", error)
        return chosen

    @property
    def _file(self) -> Path:
        fit = self.parts.fit
        facts = {
            "target": fingerprint(self.target),
            "layers": fit.target.gpu_layers,
            "kv": fit.target.kv_type,
            "threads": self.parts.threads,
            "device": [(d.kind, d.description) for d in devices()],
            "build": own_kernels.build(),
        }
        if adapters := facts_of(self.parts.adapters):
            facts["adapters"] = adapters
        if vectors := facts_of(self.parts.vectors):
            facts["control vectors"] = vectors
        return paths.cache_dir() / "kernels" / name_of(facts)


def speed(curve: Mapping[int, float], cost: float) -> float:
    """Tokens per second with the draft length that is best for ``curve``, seconds of a pass by
    width, at the usual acceptance; ``cost`` is seconds a drafted token.
    """
    ratio, _ = best_fixed([_USUAL], curve, cost)
    return ratio / curve[1]


def _room() -> int:
    """Bytes available without swapping, cached file pages included."""
    return host.memory().available
