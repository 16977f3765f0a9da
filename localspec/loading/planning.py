"""Plans the memory of a pair for the options that were given: how many requests, which context."""

from __future__ import annotations

from dataclasses import dataclass, replace

from localspec.core.errors import OutOfMemoryError
from localspec.core.settings_schema import SPARE_JOBS
from localspec.llama.remote import RemoteDevices
from localspec.loading.selection import Selection
from localspec.loading.sight import projector_bytes
from localspec.models.catalog.resolve import Resolved
from localspec.models.memory.fit import fit_files
from localspec.models.memory.planner import Fit, Wishes

_SPARE = 3
"""Requests at a time at most where the user asked for as many as fit easily."""


@dataclass(frozen=True, slots=True)
class Planning:
    """Asks for a plan of memory, for fewer requests at a time where it takes that."""

    files: Resolved
    selection: Selection
    remote: RemoteDevices | None = None

    def plan(self, kv_type: str | None) -> Fit:
        """Layers, context and KV type for what is going to be loaded, for as many requests at a
        time as were asked for, or as fit.
        """
        sequences = asked = self.selection.options.parallel
        if asked == SPARE_JOBS:
            return self._spare(kv_type)
        while True:
            try:
                fit = self._planned(kv_type, sequences)
            except OutOfMemoryError:
                if sequences == 1:
                    raise
                sequences //= 2
                continue
            if sequences == asked:
                return fit
            note = f"{sequences} replies at a time instead of {asked}, to fit"
            return replace(fit, notes=(*fit.notes, note))

    def _spare(self, kv_type: str | None) -> Fit:
        """The plan for one request at a time; for several, where nothing else gets smaller for
        them. Drafters of trees on a device stay alone: several requests draft chains.
        """
        one = self._planned(kv_type, 1)
        trees = self.selection.branches("", can_branch=True, sequences=1).count
        if self.selection.asks_for_trees or (trees and one.target.gpu_layers):
            return one
        for sequences in range(_SPARE, 1, -1):
            try:
                several = self._planned(kv_type, sequences)
            except OutOfMemoryError:
                continue
            if several.spares(one):
                return several
        return one

    def _planned(self, kv_type: str | None, sequences: int) -> Fit:
        options = self.selection.options
        wishes = Wishes(
            context=options.context,
            gpu_layers=options.gpu_layers,
            draft_gpu_layers=options.draft_gpu_layers,
            cpu_experts=options.cpu_experts,
            kv_type=kv_type,
            threads=options.threads,
            require_draft=self.selection.must_fit,
            sequences=sequences,
            strict=options.strict,
        )
        draft = self.files.draft if self.selection.uses_draft_file else None
        beside = projector_bytes(self.files.target, options)
        beside += sum(one.path.stat().st_size for one in options.adapters)
        return fit_files(self.files.target, draft, wishes, remote=self.remote, beside=beside)
