"""How a pair fits into this machine's memory: an estimate by sizes, and a plan by its files."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from localspec.core.drafter_registry import EAGLE3, MEDUSA, MODEL
from localspec.core.errors import (
    LocalspecError,
    ModelFileError,
    ModelNotFoundError,
    OutOfMemoryError,
)
from localspec.models.compat import medusa
from localspec.models.compat.heads import kind
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.sizes import OUTPUTS, Sizes, sizes_of
from localspec.models.memory.layers import BATCH, place
from localspec.models.memory.machine import Gpu, Memory, free_cores, host_only, read_memory
from localspec.models.memory.planner import (
    CPU_ONLY,
    FITS,
    PARTLY,
    Fit,
    Wishes,
    draft_kv_type,
    plan,
    usual_context,
)

if TYPE_CHECKING:
    from localspec.llama.remote import RemoteDevices

TOO_BIG = "too big"
_PARTLY_FROM = 0.15
"""Share of the weights; with less of them on a GPU its copies cost more than it gains."""
_RUNTIME_BYTES = 400_000_000
"""Bytes of KV cache and compute buffers of a model with billions of weights."""
_CHEAP_VOCABULARY = 20_000
"""Entries of a vocabulary that a dry run reads in milliseconds."""


def quick_verdict(target_bytes: int, draft_bytes: int = 0) -> str:
    """How a pair with files of these sizes would run here: FITS, PARTLY, CPU_ONLY or TOO_BIG.

    An estimate for lists; `fit_files` reads the files.
    """
    return verdict(memory_now(), target_bytes, draft_bytes)


def verdict(memory: Memory, target_bytes: int, draft_bytes: int = 0) -> str:
    """The result of `quick_verdict` on a given machine."""
    weights = target_bytes + draft_bytes
    needed = sum(n + n // 12 + min(n, _RUNTIME_BYTES) for n in (target_bytes, draft_bytes))
    if memory.gpu_usable >= needed:
        return FITS
    everywhere = memory.host_usable + (0 if memory.shared else memory.gpu_usable)
    if needed > everywhere:
        return TOO_BIG
    return PARTLY if memory.gpu_usable >= _PARTLY_FROM * weights + _RUNTIME_BYTES else CPU_ONLY


@functools.cache
def memory_now() -> Memory:
    """The memory at the first call: a list of many pairs asks the driver only once."""
    try:
        return read_memory()
    except (ImportError, OSError, RuntimeError):
        # Lists work even if the library does not load; `doctor` reports the reason.
        return host_only()


def fit_files(
    target: ModelFile,
    draft: ModelFile | None,
    wishes: Wishes,
    *,
    measure: bool = False,
    remote: RemoteDevices | None = None,
    beside: int = 0,
) -> Fit:
    """The best placement of local files here and on the ``remote`` devices; see `plan`. ``beside``
    bytes are left for something else: a projector, adapters.

    A draft that is missing, damaged or of an unknown kind is left out; loading it reports why.
    Where memory is tight, estimates are uncertain or a dry run is cheap, and always with
    ``measure``, a dry run of llama.cpp finds what it would allocate, and the plan is made again.

    Raises:
        ModelNotFoundError, ModelFileError: the target is missing or damaged.
        OutOfMemoryError: nothing fits; with the numbers.
    """
    memory = read_memory().without(beside)
    if remote is not None:
        memory = memory.with_workers(_gpus(remote))
    files, pair = [target], [sizes_of(target.header)]
    if draft is not None:
        with contextlib.suppress(ModelNotFoundError, ModelFileError):
            pair.append(_draft_sizes(draft, target))
            files.append(draft)

    wishes, cut = _within_positions(pair[0], wishes)
    uncertain = any(sizes.doubts for sizes in pair)
    fit: Fit | None = None
    try:
        fit = _planned(pair, memory, wishes)
    except OutOfMemoryError:
        if not uncertain:
            raise
    cheap = all(sizes.n_vocab < _CHEAP_VOCABULARY for sizes in pair)
    if fit is None or measure or uncertain or cheap or fit.tight or wishes.strict:
        context = fit.context if fit else wishes.context or usual_context(pair[0])
        kv_type = fit.target.kv_type if fit else wishes.kv_type or "f16"
        layers = [share.gpu_layers for share in fit.shares] if fit else []
        experts = [share.host_experts for share in fit.shares] if fit else []
        for i, file in enumerate(files):
            if kind(file.header) != MODEL:  # a head's graph needs the target's
                continue
            on_gpu = layers[i] if i < len(layers) else 0
            on_host = experts[i] if i < len(experts) else 0
            type_ = draft_kv_type(pair[i], kv_type) if i else kv_type
            try:
                pair[i] = _measured(
                    pair[i],
                    file,
                    on_gpu,
                    on_host,
                    context,
                    type_,
                    memory,
                    strict=wishes.strict and i == 0,
                    remote=remote if i == 0 else None,
                )
            except LocalspecError:
                if i == 0:
                    raise
                del pair[i]
        fit = _planned(pair, memory, wishes)
    fit = replace(fit, notes=(*cut, *fit.notes))
    return fit if wishes.threads else replace(fit, threads=free_cores(_cores()))


def _within_positions(target: Sizes, wishes: Wishes) -> tuple[Wishes, tuple[str, ...]]:
    """The wishes with a context for which the target has positions, and a line where it was cut."""
    asked, most = wishes.context, target.positions
    if asked is None or most is None or asked <= most:
        return wishes, ()
    told = f"the context is {most} tokens instead of {asked}: {target.name} has no more positions"
    return replace(wishes, context=most), (told,)


def _gpus(remote: RemoteDevices) -> tuple[Gpu, ...]:
    """The devices of workers, as memory that layers can be placed in."""
    return tuple(
        Gpu(str(worker.endpoint), "worker", device.free, device.total, worker=str(worker.endpoint))
        for worker in remote.workers
        for device in worker.devices
    )


def _planned(pair: Sequence[Sizes], memory: Memory, wishes: Wishes) -> Fit:
    """The plan of target and draft; without GPUs where these cannot hold its KV cache."""
    pair = [sizes.for_sequences(wishes.sequences) for sizes in pair]
    target, draft = pair[0], pair[1] if len(pair) > 1 else None
    fit = plan(target, draft, memory, wishes)
    too_long = _too_long(fit)
    if too_long is None:
        return fit
    fit = plan(target, draft, replace(memory, gpus=()), wishes)
    return replace(fit, notes=(*fit.notes, f"{too_long}: everything is computed on the CPU"))


def _too_long(fit: Fit) -> str | None:
    """Why no GPU can hold this KV cache, whatever its memory; None if one can.

    Raises:
        OutOfMemoryError: no GPU can, and GPU layers were requested.
    """
    from localspec.llama.devices import computes_with

    # Keys and values of a layer are one tensor each.
    tensors = [
        share.sizes.kv(i, fit.context, share.kv_type) // 2
        for share in fit.shares
        if share.gpu_layers
        for i in range(share.sizes.n_layer)
    ]
    largest = max(tensors, default=0)
    largest += largest // 16  # cells are rounded up, and draft trees need some
    if largest == 0 or computes_with(largest):
        return None
    gpu = fit.memory.gpus[0].name
    text = (
        f"a context of {fit.context} tokens needs {largest / 1e6:.0f} MB of KV cache in one piece, "
        f"which {gpu} does not compute with"
    )
    if fit.wishes.gpu_layers:
        raise OutOfMemoryError(f"{text}; use a smaller --ctx or --gpu-layers 0")
    return text


def _draft_sizes(draft: ModelFile, target: ModelFile) -> Sizes:
    if kind(draft.header) == MEDUSA:
        return medusa.sizes(draft.header, target.header)
    sizes = sizes_of(draft.header)
    if kind(draft.header) == EAGLE3:  # `localspec.llama.heads.base` reads prompts in small parts
        return replace(sizes, widest=OUTPUTS)
    return sizes


def _measured(
    sizes: Sizes,
    file: ModelFile,
    gpu_layers: int,
    host_experts: int,
    n_ctx: int,
    kv_type: str,
    memory: Memory,
    *,
    strict: bool,
    remote: RemoteDevices | None,
) -> Sizes:
    """The sizes corrected by a dry run."""
    from localspec.llama.memory_estimate import dry_run

    free = [gpu.free for gpu in memory.gpus]
    estimate = place(
        sizes,
        "",
        gpu_layers=gpu_layers,
        n_ctx=n_ctx,
        kv_type=kv_type,
        free=free,
        host_experts=host_experts,
    )
    found = dry_run(
        file.path,
        gpu_layers=gpu_layers,
        n_ctx=n_ctx,
        n_batch=BATCH,
        kv_type=kv_type,
        host_experts=host_experts,
        strict=strict,
        remote=remote,
    )
    on_gpu = sum(n for name, n in found.compute.items() if _is_gpu(name))
    if estimate.gpu_compute and on_gpu:
        compute = on_gpu / estimate.gpu_compute
    else:
        compute = sum(found.compute.values()) / estimate.compute
    return sizes.corrected(found.kv / estimate.kv if estimate.kv else 1.0, compute)


def _is_gpu(buffers: str) -> bool:
    """Whether buffers of that name are on a GPU: CUDA0 and MTL0 are, CPU and CUDA_Host are not."""
    return not buffers.startswith("CPU") and not buffers.endswith("_Host")


def _cores() -> int:
    from localspec.llama.devices import physical_cores

    return physical_cores()
