"""What memory this machine has to spare: its GPUs' and the host's."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

MIB = 1 << 20
_GPU_MARGIN = 768 * MIB
"""Kept free on a GPU: its driver, libraries and the screen take more after we have looked."""
_HOST_MARGIN = 512 * MIB


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device that layers can be placed on."""

    name: str
    description: str
    free: int
    """Bytes."""
    total: int
    """Bytes."""

    @property
    def usable(self) -> int:
        """Bytes that may be planned with: what is free less a margin, which small cards share."""
        return max(0, self.free - min(_GPU_MARGIN, self.free // 8))


@dataclass(frozen=True, slots=True)
class Memory:
    """What is free now, in bytes."""

    gpus: tuple[Gpu, ...]
    host_free: int
    """What the system says can be had without swapping, not what nobody uses."""
    host_total: int
    shared: bool = False
    """GPU and host draw from the same memory: Apple silicon, integrated GPUs."""

    @property
    def host_usable(self) -> int:
        """Bytes of host memory that may be planned with."""
        return max(0, self.host_free - min(_HOST_MARGIN, self.host_free // 16))

    @property
    def gpu_usable(self) -> int:
        """Bytes over all GPUs that may be planned with."""
        return sum(gpu.usable for gpu in self.gpus)


def host_only() -> Memory:
    """The host's memory, for a build without a GPU or with a library that cannot be loaded."""
    memory = psutil.virtual_memory()
    return Memory((), int(memory.available), int(memory.total))


def look() -> Memory:
    """Ask llama.cpp for its devices and the system for its memory.

    Raises:
        ImportError, OSError, RuntimeError: llama.cpp cannot be loaded.
    """
    from localspec.llama.devices import backend, devices

    host = host_only()
    if backend() == "cpu":
        return host
    found = [d for d in devices() if d.kind in {"gpu", "igpu"}]
    # llama.cpp leaves integrated GPUs alone where there is a real one.
    chosen = [d for d in found if d.kind == "gpu"] or found
    return Memory(
        gpus=tuple(Gpu(d.name, d.description, d.free, d.total) for d in chosen),
        host_free=host.host_free,
        host_total=host.host_total,
        shared=all(d.kind == "igpu" or d.name.lower().startswith(("mtl", "metal")) for d in chosen),
    )
