"""Which kernels compute a target: those for weights in extra buffers, or the plain ones.

At load llama.cpp copies quantized weights into the order that the processor's own kernels want
(repacked weights, AMX tiles: "extra buffers"). On one processor that makes single tokens faster and
several at once slower, on another the reverse. So where a pair is loaded that drafts, both are
measured once, in turns, and what promises more tokens per second with drafting is kept for every
later load of the target, whatever drafts then: the two kinds of kernels differ in the last bits, so
plain and drafted decoding must use the same.

The plain kernels compute from the file as it is mapped. So the second load copies nothing, and
takes memory for a small context only, beside the file's pages that the first load has just read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from localspec.config import paths
from localspec.errors import Interrupted, OutOfMemoryError
from localspec.llama import library
from localspec.llama.context import Context
from localspec.llama.devices import devices
from localspec.llama.model import Model
from localspec.llama.timing import compare, pass_seconds
from localspec.loading.resources import Parts
from localspec.models.gguf.fingerprint import fingerprint
from localspec.policy.storage import name_of, write
from localspec.policy.theory import best_fixed

SECONDS = 2.0
"""What a trial may take, the second load included."""
_LOAD_S = 1.0
"""The part of it that the second load may take."""
_FORMAT = 1
_TRIES = 3
"""Loads that found a trial too slow, after which none is made any more."""
_LEAST_BYTES = 64 << 20
"""A smaller target is fast either way, and loading it twice would double its start."""
_LONGEST_PASS_S = 0.15
"""Of one token; beyond it a trial cannot see several widths of both in time."""
_SPARE_BYTES = 512 << 20
"""Free memory beyond the file's own pages."""
_USUAL = 0.8
"""Acceptance that drafts are compared at: about that of a good draft model on chat and code."""
_MUST_GAIN = 1.05
"""The plain kernels must be this much faster: less is within what measurements vary."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The choice for a target."""

    extra_buffers: bool
    why: str

    def describe(self, model: Model) -> str:
        """The kernels in use, and why."""
        kind = "extra buffers" if model.uses_extra_buffers else "plain"
        return f"{kind} ({self.why})"


def _uncompared(why: str) -> Kernels:
    return Kernels(extra_buffers=True, why=f"not compared: {why}")


UNSOUND = Kernels(extra_buffers=False, why="extra buffers are unsound on this machine")
NOT_COMPARED = _uncompared("the draft length is given, or nothing drafts")


@dataclass(frozen=True, slots=True)
class Trials:
    """The choice for one target, as it is going to be placed; kept in a file."""

    parts: Parts
    """Loads it."""
    target: Path

    def bound(self) -> Kernels | None:
        """What this machine allows, where it leaves no choice."""
        return None if self.parts.extra_buffers else UNSOUND

    def known(self) -> Kernels | None:
        """What this machine allows or an earlier load found; None where it is to be found."""
        return self.bound() or self._found()

    def _found(self) -> Kernels | None:
        kept = self._kept()
        return kept[0] if kept is not None and kept[1] >= _TRIES else None

    def _kept(self) -> tuple[Kernels, int] | None:
        """What is in the file, and after how many trials; a damaged file is as good as none."""
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            if kept["format"] != _FORMAT or not isinstance(kept["extra_buffers"], bool):
                return None
            return Kernels(kept["extra_buffers"], str(kept["why"])), int(kept["tries"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def choose(
        self, context: Context, next_layers: bool, draft_bytes: int
    ) -> tuple[Kernels, Model]:
        """The choice, and the model loaded so: that of ``context``, which uses extra buffers, or
        another beside it. ``draft_bytes`` are those of the draft, 0 where none computes.

        Raises:
            Interrupted: as loading a model.
        """
        began = time.perf_counter()
        extra = context.model
        if not extra.uses_extra_buffers:
            return Kernels(extra_buffers=True, why="none of its weights has others"), extra
        why = self._why_not(context)
        if why is not None:
            return _uncompared(why), extra
        if pass_seconds(context, 1, tries=2) > _LONGEST_PASS_S:
            return self._again("its passes take too long"), extra
        try:
            plain = self._loaded_plain(next_layers, began)
            if plain is None:
                return self._again("loading it a second time takes too long"), extra
            chosen = self._compared(context, plain, draft_bytes, began)
        except OutOfMemoryError:
            self._unload_all_but(extra)
            return _uncompared("too little free memory"), extra
        kept = extra if chosen.extra_buffers else plain
        self._unload_all_but(kept)
        return chosen, kept

    def _again(self, why: str) -> Kernels:
        """Extra buffers stay, and the next load tries again: the machine may have been busy. It
        was not, where one load after the other found so.
        """
        before = self._kept()
        return self._keep(_uncompared(why), 1 + (before[1] if before is not None else 0))

    def _unload_all_but(self, kept: Model) -> None:
        """Of the two; with the contexts made of it."""
        for part in list(self.parts.loaded):
            if isinstance(part, Model) and part.path == self.target and part is not kept:
                self.parts.unload(part)

    def _why_not(self, context: Context) -> str | None:
        """Why a trial would be of no use, or has no room; None if it may be made."""
        model = context.model
        if model.n_bytes < _LEAST_BYTES:
            return "the target is small"
        if model.gpu_layers:
            return "some of its layers are on a GPU, which has no room for them twice"
        if _room() < model.n_bytes + _SPARE_BYTES:
            return "too little free memory"
        return None

    def _loaded_plain(self, next_layers: bool, began: float) -> Model | None:
        """The target without extra buffers; None where that takes too long."""
        cancelled = self.parts.cancelled

        def late() -> bool:
            asked = cancelled is not None and cancelled()
            return asked or time.perf_counter() - began > _LOAD_S

        quietly = replace(self.parts, on_event=None, cancelled=late)  # one list of what is loaded
        try:
            with library.listening():
                return quietly.model(
                    self.target,
                    self.parts.fit.target,
                    next_layers=next_layers,
                    extra_buffers=False,
                )
        except Interrupted:
            if cancelled is not None and cancelled():
                raise
            return None

    def _compared(self, context: Context, plain: Model, draft_bytes: int, began: float) -> Kernels:
        with library.listening():
            beside = Context(
                plain,
                n_ctx=256,
                n_batch=64,
                threads=context.threads,
                kv_type=context.kv_type,
                stop=context.stop,
            )
        try:
            extra_s, plain_s = compare((context, beside), began + SECONDS - time.perf_counter())
        finally:
            beside.close()
        if len(extra_s) < 2:
            return self._again("its passes take too long")
        cost = draft_bytes / max(1, context.model.n_bytes) * min(extra_s[1], plain_s[1])
        gain = speed(plain_s, cost) / speed(extra_s, cost)
        chosen = Kernels(True, f"{1 / gain:.2f} times the speed of plain kernels, by its passes")
        if gain > _MUST_GAIN:
            why = f"{gain:.2f} times the speed with extra buffers, by its passes"
            chosen = Kernels(False, why)
        return self._keep(chosen, _TRIES)

    def _keep(self, chosen: Kernels, tries: int) -> Kernels:
        """The choice, kept for the next load. Where it cannot be, that one measures again; the
        policy says so when it fails to keep its own measurements in the same folder.
        """
        facts = {
            "format": _FORMAT,
            "extra_buffers": chosen.extra_buffers,
            "why": chosen.why,
            "tries": tries,
        }
        try:
            write(self._file, facts)
        except OSError as error:
            library.logger.warning("the choice of kernels cannot be kept: %s", error)
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
            "build": [library.version(), library.commit(), library.system_info()],
        }
        return paths.cache_dir() / "kernels" / name_of(facts)


def speed(curve: Mapping[int, float], cost: float) -> float:
    """Tokens per second with the draft length that is best for ``curve``, seconds of a pass by
    width, at the usual acceptance; ``cost`` is seconds a drafted token.
    """
    ratio, _ = best_fixed([_USUAL], curve, cost)
    return ratio / curve[1]


def _room() -> int:
    """Bytes that can be had without swapping, what the system keeps of files among them."""
    return int(psutil.virtual_memory().available)


__all__ = ["NOT_COMPARED", "Kernels", "Trials", "speed"]
