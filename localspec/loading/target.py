"""Loads a target: its model and its context, with the kernels for drafting or in strict mode, on
the devices and workers that the options name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec.compiling import llama_source
from localspec.core.endpoint import endpoints
from localspec.core.errors import Interrupted, WorkerError
from localspec.core.interrupt import Cancelled
from localspec.core.options import Options
from localspec.llama import remote
from localspec.llama.context import Context
from localspec.llama.devices import backend
from localspec.llama.limits import ROLLBACK
from localspec.llama.model import Model
from localspec.llama.remote import RemoteDevices
from localspec.llama.rpc import handshake, plugin
from localspec.loading.kernels import NOT_COMPARED, OWN, Kernels, Trials
from localspec.loading.resources import Parts, left_device
from localspec.loading.selection import Selection
from localspec.loading.strict import StrictLoading
from localspec.models.compat.header_vocabulary import unsplit
from localspec.models.compat.heads import carries_mtp
from localspec.models.gguf.model_file import ModelFile


def connected(
    options: Options, tell: Callable[[str], None], cancelled: Cancelled
) -> RemoteDevices | None:
    """The devices of the workers; None where the options name none. ``tell`` is told what takes
    time.

    Raises:
        WorkerError: one of them cannot be used, or there is no plugin.
        Interrupted: it was cancelled while the plugin was compiled.
    """
    wanted = endpoints(options.rpc)
    if not wanted:
        return None

    if not plugin.available():  # it is compiled for workers that are there
        for endpoint in wanted:
            handshake.ask(endpoint)
    made = _plugin(options, tell, cancelled)
    workers = [handshake.ask(endpoint, version=made.version) for endpoint in wanted]
    return remote.connect(made.path, workers, options.rpc_timeout)


def _plugin(options: Options, tell: Callable[[str], None], cancelled: Cancelled) -> plugin.Plugin:
    given = os.environ.get(llama_source.VARIABLE)
    try:
        made = plugin.obtain(
            Path(given) if given else None,
            offline=options.offline,
            on_start=lambda: tell("compiling the plugin for other machines, once"),
        )
    except WorkerError:
        if not cancelled():
            raise
    else:
        if not cancelled():
            return made
    # Ctrl-C of a terminal has ended the compiler, too.
    raise Interrupted("interrupted while the plugin for other machines was compiled")


def where(model: Model, devices: RemoteDevices) -> str:
    """A notice: how much of a model the workers, and GPUs if there are any, have."""
    place = f"on {devices}" if backend() == "cpu" else f"on {devices} and this machine's GPUs"
    return f"{model.gpu_layers} of {model.n_layer + 1} layers of {model.path.name} are {place}"


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
        known = trials.bound() if selection.options.remeasure else trials.known()
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
        remeasure = self.selection.options.remeasure
        promise = StrictLoading(parts, file, next_layers, remeasure).load()
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
        split = unsplit(self.file.header)
        if split is not None:
            told.append(split)
        if model.template is None:
            told.append(f"{name} has no chat template: a plain User/Assistant one is used")
        return tuple(told)

    def _draft_bytes(self, target: Model) -> int:
        """About what is read for a drafted token; 0 where nothing computes one."""
        if self.selection.in_target:
            return target.n_bytes // max(1, target.n_layer)
        draft = self.selection.headers.draft if self.selection.uses_draft_file else None
        return draft.size if draft is not None else 0  # a missing file is an error later
