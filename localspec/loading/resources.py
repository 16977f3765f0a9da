"""Loaded resources of a pair: models, contexts and heads, placed as planned, freed in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from localspec.core.adapter_list import Adapter
from localspec.core.events import Loading
from localspec.core.interrupt import Cancelled, never
from localspec.llama.adapters import Adapters
from localspec.llama.batch import StopFlag
from localspec.llama.context import Context
from localspec.llama.control_vectors import ControlVectors
from localspec.llama.devices import physical_cores
from localspec.llama.heads.base import Head
from localspec.llama.heads.medusa import Medusa, opened
from localspec.llama.limits import STRICT_BATCH
from localspec.llama.model import Model
from localspec.llama.projector import Projector
from localspec.llama.remote import RemoteDevices
from localspec.llama.strict import Recipe, StrictContext, strict_context
from localspec.llama.threads import choose_threads
from localspec.loading.own_kernels import NOT_WANTED, Choice
from localspec.models.gguf.model_file import ModelFile
from localspec.models.memory.layers import BATCH, Share
from localspec.models.memory.planner import Fit

_Head = TypeVar("_Head", bound=Head)
_Context = TypeVar("_Context", bound=Context)
Progress = Callable[[Loading], None]
Part = Context | Model | Medusa | Projector


def unheard(_: Loading) -> None:
    """Progress that nobody follows."""


@dataclass(slots=True)
class Parts:
    """Loads parts for one plan of memory, and frees them all."""

    fit: Fit
    threads: int | None
    """Threads that the user named; None: measured for each context."""
    stop: StopFlag
    """Aborts a running pass of any of them."""
    on_event: Progress = unheard
    cancelled: Cancelled = never
    own: Choice = NOT_WANTED
    """Whether our own kernels compute on the processor."""
    extra_buffers: bool = True
    """Whether llama.cpp's extra buffers compute correctly on this machine; see `Model`."""
    remote: RemoteDevices | None = None
    """Devices of workers, which have layers of the target only."""
    adapters: tuple[Adapter, ...] = ()
    """Adapters of the target."""
    vectors: tuple[Adapter, ...] = ()
    """Its control vectors."""
    loaded: list[Part] = field(default_factory=list)
    """All parts in the order of freeing: contexts before the models that they use."""

    def model(
        self,
        path: Path,
        share: Share | None,
        *,
        next_layers: bool = False,
        alone: bool = True,
        extra_buffers: bool = True,
    ) -> Model:
        """The model in a file, with as many layers on the GPU as its share says.

        A model that is not to run ``alone`` is a head; all its layers are loaded. ``extra_buffers``
        are used only where they compute correctly.

        Raises:
            ModelNotFoundError, ModelFileError, UnsupportedModelError, OutOfMemoryError, Interrupted
        """

        def progress(fraction: float) -> None:
            self.on_event(Loading(path.name, fraction))

        is_target = share is not None and share is self.fit.target
        made = Model(
            path,
            gpu_layers=share.gpu_layers if share is not None else 0,
            next_layers=next_layers or not alone,
            alone=alone,
            extra_buffers=extra_buffers and self.extra_buffers,
            own_kernels=bool(self.own.unit),
            beside_device=self.own.asked,
            host_experts=share.host_experts if share is not None else 0,
            remote=self.remote if is_target else None,
            adapters=Adapters(self.adapters) if is_target else None,
            vectors=ControlVectors(self.vectors) if is_target else None,
            on_progress=progress,
            cancelled=self.cancelled,
        )
        self.loaded.append(made)
        return made

    def strict_context(self, model: Model, kv_type: str, recipe: Recipe) -> StrictContext:
        """A strict context of the planned size.

        Raises:
            OutOfMemoryError: there is no room for it.
        """
        made = strict_context(recipe)(
            model,
            n_ctx=self.fit.context,
            n_seq=self.fit.wishes.sequences,
            n_batch=STRICT_BATCH,
            threads=self.fit.threads,
            kv_type=kv_type,
            stop=self.stop,
        )
        return self._timed(made)

    def context(self, model: Model, kv_type: str, branches: int = 0, rollback: int = 0) -> Context:
        """A context of the planned size, see `Context`.

        Raises:
            OutOfMemoryError: there is no room for it.
        """
        made = Context(
            model,
            n_ctx=self.fit.context,
            n_seq=self.fit.wishes.sequences,
            branches=branches,
            rollback=rollback,
            n_batch=BATCH,
            threads=self.fit.threads,
            kv_type=kv_type,
            stop=self.stop,
        )
        return self._timed(made)

    def _timed(self, made: _Context) -> _Context:
        """Add a context, with the number of threads that is best for it."""
        self.loaded.insert(0, made)
        if self.threads is None and made.model.on_host:
            choose_threads(made)
        elif self.threads is None and made.model.remote is not None:
            made.set_threads(1)  # for the look-up of the embedding, which is all that is left here
        return made

    def head(self, kind: type[_Head], model: Model, target: Context, kv_type: str) -> _Head:
        """A head for the target's context, with as many threads and, if it can, as many branches.

        Raises:
            OutOfMemoryError: there is no room for it.
        """
        made = kind(
            model,
            target,
            n_ctx=self.fit.context,
            n_seq=target.sequences,
            branches=target.branches if model.branching else 0,
            n_batch=BATCH,
            threads=target.threads,
            kv_type=kv_type,
            stop=self.stop,
        )
        self.loaded.insert(0, made)
        return made

    def choose_head_threads(
        self, head: Head, target: Context, seconds: Callable[[], float] | None = None
    ) -> None:
        """Choose the threads of a head that the processor computes next to a target that it does
        not, which has as few as the look-up of an embedding needs. The head was checked: damaged
        ones abort a pass. ``seconds`` is as in `choose_threads`.
        """
        if self._alone_on_host(target, on_host=head.model.on_host):
            choose_threads(head, seconds)

    def medusa_threads(self, target: Context) -> int:
        """Threads of Medusa heads, if the processor computes them."""
        alone = self._alone_on_host(target, on_host=not self._medusa_on_gpu)
        return physical_cores() if alone else target.threads

    @property
    def _medusa_on_gpu(self) -> bool:
        return self.fit.draft is not None and self.fit.draft.gpu_layers > 0

    def _alone_on_host(self, target: Context, *, on_host: bool) -> bool:
        return self.threads is None and on_host and not target.model.on_host

    def medusa(self, head: ModelFile, target_file: ModelFile, target: Context) -> Medusa:
        """The Medusa heads in a file, on the target's device."""
        threads = self.medusa_threads(target)
        made = opened(head, target_file, on_gpu=self._medusa_on_gpu, threads=threads)
        self.loaded.insert(0, made)
        return made

    def unload(self, model: Model) -> None:
        """Free a model that is not used after all, its contexts first."""
        for part in list(self.loaded):
            if part is model or (isinstance(part, Context) and part.model is model):
                part.close()
                self.loaded.remove(part)

    def close(self) -> None:
        """Free everything. May be called twice."""
        for part in self.loaded:
            part.close()
        self.loaded.clear()


def left_device(context: Context) -> tuple[str, ...]:
    """A notice where a device has all layers, and the processor computes parts of every pass."""
    if not context.leaves_device:
        return ()
    told = (
        f"the device lacks an operation of {context.model.path.name}: parts of every pass are "
        f"computed on the CPU ({context.graph_splits} graph splits), which is slow"
    )
    return (told,)
