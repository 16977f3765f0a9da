"""Loads a target: its model and its context, with the kernels for drafting or in strict mode."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.llama.context import Context
from localspec.llama.limits import ROLLBACK
from localspec.llama.model import Model
from localspec.llama.remote import RemoteDevices
from localspec.loading.kernels import NOT_COMPARED, OWN, Kernels, Trials
from localspec.loading.resources import Parts, left_device
from localspec.loading.selection import Selection
from localspec.loading.strict import StrictLoading
from localspec.loading.workers import where
from localspec.models.compat.heads import carries_mtp
from localspec.models.gguf.model_file import ModelFile


class CacheOnHostError(Exception):
    """The KV type was chosen automatically, and the device does not compute with it."""


@dataclass(frozen=True, slots=True)
class LoadedTarget:
    """A target that is loaded."""

    context: Context
    kernels: Kernels
    strict: str
    """How strict mode computes; "" without it."""
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TargetLoading:
    """Loads one target."""

    file: ModelFile
    selection: Selection
    parts: Parts
    remote: RemoteDevices | None
    """The workers that it is on."""
    remeasure: bool
    """Whether to compare kernels again, and to repeat the self-test of strict mode."""

    def load(self) -> LoadedTarget:
        """Load it with the kernels that an earlier load found better for drafting on this machine;
        where none did and something is to draft, they are compared now.

        Raises:
            CacheOnHostError: load again with an f16 KV cache.
            LocalspecError: see `localspec.core.errors`.
        """
        selection, parts, fit = self.selection, self.parts, self.parts.fit
        file = self.file.path
        if selection.options.strict:
            return self._load_strictly()
        trials = Trials(parts, file)
        known = trials.bound() if self.remeasure else trials.known()
        kernels = known or NOT_COMPARED
        next_layers = self._next_layers
        model = parts.model(
            file, fit.target, next_layers=next_layers, extra_buffers=kernels.extra_buffers
        )
        if kernels is OWN and not model.uses_own_kernels:
            known, kernels = None, NOT_COMPARED  # all its weights are of other formats
        told = list(self._about_target(model, fit.context))
        room = selection.branches(
            model.path.name, can_branch=model.branching, sequences=fit.wishes.sequences
        )
        rollback = 0 if selection.off else ROLLBACK
        context = parts.context(model, fit.target.kv_type, room.count, rollback=rollback)
        if context.leaves_device:
            if fit.target.kv_type != "f16" and fit.wishes.kv_type is None:
                raise CacheOnHostError(
                    f"this device does not compute attention over a {fit.target.kv_type} KV cache; "
                    "the cache is f16 instead"
                )
            told += left_device(context)
        if known is None and selection.options.draft_max is None and not selection.off:
            kernels, better = trials.choose(context, next_layers, self._draft_bytes(model))
            if better is not model:
                context = parts.context(better, fit.target.kv_type, room.count, rollback=rollback)
        return LoadedTarget(context, kernels, "", (*told, *room.notices))

    def _load_strictly(self) -> LoadedTarget:
        """Load it in strict mode, which drafts chains alone.

        Raises:
            StrictError: strict mode cannot be promised.
        """
        file, parts, next_layers = self.file, self.parts, self._next_layers
        promise = StrictLoading(parts, file, next_layers, self.remeasure).load()
        told = self._about_target(promise.model, parts.fit.context)
        room = self.selection.branches(
            file.name, can_branch=False, sequences=parts.fit.wishes.sequences
        )
        context = parts.strict_context(promise.model, parts.fit.target.kv_type, promise.recipe)
        strict = promise.recipe.describe()
        return LoadedTarget(context, promise.kernels, strict, (*told, *room.notices))

    @property
    def _next_layers(self) -> bool:
        """Whether to load the target's layers for multi-token prediction."""
        return self.selection.in_target and carries_mtp(self.selection.headers.target)

    def _about_target(self, model: Model, context: int) -> tuple[str, ...]:
        """Notices about the target, one line each."""
        trained, name, told = model.n_ctx_train, self.file.name, list[str]()
        if self.remote is not None:
            told.append(where(model, self.remote))
        if context > trained:
            told.append(
                f"a context of {context} tokens is more than the {trained} that {name} was trained "
                "for; long chats may degrade to nonsense"
            )
        unused = self.selection.headers.unused_layer(self.selection.options)
        if unused is not None:
            told.append(f"{unused}; drafting without it")
        if model.template is None:
            told.append(f"{name} has no chat template: a plain User/Assistant one is used")
        return tuple(told)

    def _draft_bytes(self, target: Model) -> int:
        """About what is read for a drafted token; 0 where nothing computes one."""
        if self.selection.in_target:
            return target.n_bytes // max(1, target.n_layer)
        draft = self.selection.headers.draft if self.selection.uses_draft_file else None
        return draft.size if draft is not None else 0  # a missing file is an error later
