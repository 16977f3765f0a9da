"""Free memory of this machine: of its GPUs and of the host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import monotonic, sleep

from localspec.core.processes import host
from localspec.core.units import CUDA_KERNELS

MIB = 1 << 20
_GPU_MARGIN = 768 * MIB
"""Bytes that stay free on a GPU for its driver, libraries and the screen."""
_LOADS_KERNELS = ("cuda", "rocm")
_HOST_MARGIN = 512 * MIB
_SAMPLE_S = 0.05


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device that layers can be placed on."""

    name: str
    description: str
    free: int
    """Bytes."""
    total: int
    """Bytes."""
    cap: int | None = None
    """Upper limit of `usable`, after a larger allocation was refused."""
    worker: str = ""
    """Address of the worker that it belongs to; "" for a device of this machine."""

    @property
    def usable(self) -> int:
        """Bytes to plan with: the free ones less a margin, which is smaller on small cards."""
        margin = min(_GPU_MARGIN, self.free // 8)
        if self.name.lower().startswith(_LOADS_KERNELS):
            margin = max(margin, CUDA_KERNELS)
        usable = max(0, self.free - margin)
        return usable if self.cap is None else min(usable, self.cap)


@dataclass(frozen=True, slots=True)
class Memory:
    """Free memory, in bytes."""

    gpus: tuple[Gpu, ...]
    host_free: int
    """Bytes available without swapping, including caches that the system can drop."""
    host_total: int
    shared: bool = False
    """Whether GPU and host share one memory: Apple silicon, integrated GPUs."""
    free_now: int | None = None
    """Bytes available at once, where the system makes room for a GPU up to ``host_free``: macOS
    compresses what other programs do not use. None: as many as ``host_free``."""

    @property
    def host_usable(self) -> int:
        """Bytes of host memory to plan with."""
        return max(0, self.host_free - min(_HOST_MARGIN, self.host_free // 16))

    @property
    def workers(self) -> bool:
        """Whether any device is a worker's."""
        return any(gpu.worker for gpu in self.gpus)

    @property
    def own_gpus(self) -> bool:
        """Whether any device is of this machine."""
        return any(not gpu.worker for gpu in self.gpus)

    @property
    def devices(self) -> str:
        """The devices, in words."""
        own = "GPUs" if self.workers else "the GPU"
        if not self.workers:
            return own
        return f"{own} and workers" if self.own_gpus else "the workers"

    def with_workers(self, gpus: tuple[Gpu, ...]) -> Memory:
        """This memory with devices of workers, which are filled first."""
        return replace(self, gpus=(*gpus, *self.gpus))

    def without(self, n_bytes: int) -> Memory:
        """This memory less ``n_bytes`` for something else, on the first GPU if there is one."""
        if not self.gpus:
            return replace(self, host_free=max(0, self.host_free - n_bytes))
        first, *others = self.gpus
        first = replace(first, free=max(0, first.free - n_bytes))
        return replace(self, gpus=(first, *others))

    @property
    def gpu_usable(self) -> int:
        """Bytes on all GPUs together to plan with."""
        return sum(gpu.usable for gpu in self.gpus)


def host_only() -> Memory:
    """The host's memory alone: for a build without GPU, or where llama.cpp cannot be loaded."""
    memory = host.memory()
    return Memory((), memory.available, memory.total)


def free_cores(cores: int) -> int:
    """How many of ``cores`` physical cores other programs leave idle; at least half of them."""
    least = (cores + 1) // 2
    if least == cores:
        return cores  # one core: no sample is waited for
    began, before = monotonic(), host.processor_time().seconds
    sleep(_SAMPLE_S)
    busy = round((host.processor_time().seconds - before) / (monotonic() - began))
    return max(least, cores - busy)


def read_memory() -> Memory:
    """The memory by llama.cpp's devices and the system.

    Raises:
        ImportError, OSError, RuntimeError: llama.cpp cannot be loaded.
    """
    from localspec.llama.devices import backend, free_accelerators, full_cards

    own = host_only()
    if backend() == "cpu":
        return own
    chosen = free_accelerators()
    full = full_cards()
    silent = not full and all(d.total == 0 for d in chosen)  # as some integrated GPUs' drivers are
    apple = all(d.name.lower().startswith(("mtl", "metal")) for d in chosen)
    # Metal itself says how much of the memory it recommends to use, whatever is free right now.
    recommended = sum(d.free for d in chosen) if apple else 0
    return Memory(
        gpus=tuple(
            Gpu(
                d.name,
                d.description,
                d.free if d.total or d.name in full else own.host_free,
                d.total if d.name in full else d.total or own.host_total,
            )
            for d in chosen
        ),
        host_free=max(own.host_free, min(recommended, own.host_total)),
        host_total=own.host_total,
        free_now=own.host_free if apple else None,
        shared=silent or apple or all(d.kind == "igpu" for d in chosen),
    )
