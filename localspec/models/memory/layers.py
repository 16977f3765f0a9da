"""Places a pair on the devices of a machine, at one context and KV type: memory of each device for
a number of GPU layers, as llama.cpp places a model.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from localspec.models.gguf.sizes import Sizes
from localspec.models.memory.machine import Memory

BATCH = 512
"""Prompt tokens in one pass, which determine the size of the compute buffers."""


@dataclass(frozen=True, slots=True)
class Share:
    """Memory that one model takes, in bytes."""

    role: str
    """``target`` or ``draft``."""
    sizes: Sizes
    gpu_layers: int
    n_layers: int
    """Layers that can be on a GPU: those of the transformer, and the output."""
    kv_type: str
    weights: int
    kv: int
    compute: int
    gpu_compute: int
    """The part of `compute` on GPUs."""
    gpus: tuple[int, ...]
    """Total of each GPU."""
    host: int
    """Total of the host."""
    host_experts: int = 0
    """Layers on GPUs whose routed experts stay on the host: the first ones."""
    host_read: int = 0
    """Bytes of layers that the host reads for a token: the time of a pass follows them."""

    @property
    def name(self) -> str:
        """Name of the model's file."""
        return self.sizes.name

    @property
    def total(self) -> int:
        """Bytes on all devices."""
        return sum(self.gpus) + self.host


def place(
    sizes: Sizes,
    role: str,
    *,
    gpu_layers: int,
    n_ctx: int,
    kv_type: str,
    free: Sequence[int],
    host_experts: int = 0,
) -> Share:
    """Memory on GPUs and host with ``gpu_layers`` layers on GPUs that have ``free`` bytes each, but
    without the routed experts of the first ``host_experts`` layers.

    llama.cpp offloads from the end: first the output, then the last layers. It divides them over
    several GPUs in proportion to their free memory.
    """
    last = sizes.n_layer  # the output counts as the layer after the last
    count = min(gpu_layers, last + 1) if free else 0
    start = last + 1 - count
    kept = sum(sizes.experts[start:host_experts])  # experts of layers on GPUs, on the host
    host_weights = sizes.inputs + sum(sizes.layers[:start]) + kept
    unread = (1 - sizes.experts_read) * sum(sizes.experts[: max(start, host_experts)])
    host_read = int(sum(sizes.layers[:start]) + kept - unread)
    host_kv = sum(sizes.kv(i, n_ctx, kv_type) for i in range(min(start, last)))
    if count == 0:
        host_weights += 0 if sizes.tied else sizes.outputs
        host_compute = sizes.compute(n_ctx, BATCH)
    else:
        host_compute = sizes.host_compute(n_ctx, BATCH)
    gpus = [0] * len(free)
    gpu_weights = gpu_kv = gpu_compute = 0
    for layer, gpu in zip(range(start, last + 1), _split(count, free), strict=True):
        if gpus[gpu] == 0:
            # While a prompt is read, host layers are copied to the GPU, two tensors at a time.
            copied = 2 * sizes.largest if start > 0 or kept else 0
            taken = sizes.compute(n_ctx, BATCH) + copied
            gpus[gpu] += taken
            gpu_compute += taken
        weights = sizes.outputs if layer == last else sizes.layers[layer]
        if layer < min(host_experts, last):
            weights -= sizes.experts[layer]
        kv = 0 if layer == last else sizes.kv(layer, n_ctx, kv_type)
        gpus[gpu] += weights + kv
        gpu_weights += weights
        gpu_kv += kv
    return Share(
        role=role,
        sizes=sizes,
        gpu_layers=count,
        n_layers=last + 1,
        kv_type=kv_type,
        weights=host_weights + gpu_weights,
        kv=host_kv + gpu_kv,
        compute=host_compute + gpu_compute,
        gpu_compute=gpu_compute,
        gpus=tuple(gpus),
        host=host_weights + host_kv + host_compute + sizes.rows,
        host_experts=host_experts if kept else 0,
        host_read=host_read,
    )


def _split(count: int, free: Sequence[int]) -> list[int]:
    """Index of the GPU of each of ``count`` layers, in order."""
    whole = sum(free) or 1
    bounds = [part / whole for part in itertools.accumulate(free)]
    return [min(bisect.bisect_right(bounds, i / count), len(free) - 1) for i in range(count)]


def on_gpus(memory: Memory, shares: Sequence[Share]) -> list[int]:
    """Bytes on each GPU."""
    return [sum(share.gpus[i] for share in shares) for i in range(len(memory.gpus))]


def gpus_hold(memory: Memory, shares: Sequence[Share]) -> bool:
    """Whether every GPU has room for its share."""
    sums = on_gpus(memory, shares)
    return all(n <= gpu.usable for n, gpu in zip(sums, memory.gpus, strict=True))


def host_holds(memory: Memory, shares: Sequence[Share]) -> bool:
    """Whether the host has room for its share, and for the GPUs' shares where memory is shared."""
    host = sum(share.host for share in shares)
    used = zip(on_gpus(memory, shares), memory.gpus, strict=True)
    own = sum(n for n, gpu in used if not gpu.worker)
    return host + (own if memory.shared else 0) <= memory.host_usable


def within(memory: Memory, shares: Sequence[Share]) -> bool:
    """Whether all shares fit into the usable memory."""
    return gpus_hold(memory, shares) and host_holds(memory, shares)


@dataclass(frozen=True, slots=True)
class Placement:
    """A target and its draft model, and the machine to place them on."""

    target: Sizes
    draft: Sizes | None
    memory: Memory
    n_ctx: int
    """Tokens."""
    kv_type: str
    draft_kv_type: str

    def shares(
        self, target_layers: int, draft_layers: int, host_experts: int = 0
    ) -> tuple[Share, ...]:
        """Memory of target and draft; the draft gets what the target leaves on this machine's
        GPUs.
        """
        free = [g.free for g in self.memory.gpus]
        own = [0 if g.worker else g.free for g in self.memory.gpus]
        one = place(
            self.target,
            "target",
            gpu_layers=target_layers,
            n_ctx=self.n_ctx,
            kv_type=self.kv_type,
            free=free,
            host_experts=host_experts,
        )
        if self.draft is None:
            return (one,)
        two = place(
            self.draft,
            "draft",
            gpu_layers=draft_layers,
            n_ctx=self.n_ctx,
            kv_type=self.draft_kv_type,
            free=[max(0, n - used) for n, used in zip(own, one.gpus, strict=True)],
        )
        return one, two

    def best(
        self,
        draft_layers: int,
        target_layers: int | None = None,
        host_experts: int | None = None,
    ) -> tuple[Share, ...]:
        """The most of the target that the GPUs hold next to ``draft_layers`` of the draft, or as
        many layers, and as many layers' experts on the host, as the user asked for.

        Either the last layers are there, whole; or, if the host then reads less for a token, all
        layers, and the routed experts of as few as possible stay on the host.
        """
        every = self.target.n_layer + 1
        if target_layers is not None or not self.memory.gpus:
            return self.shares(target_layers or 0, draft_layers, host_experts or 0)
        if host_experts is not None and self._take_experts(
            draft_layers, self.target.n_layer - host_experts
        ):
            return self.shares(every, draft_layers, host_experts)
        whole = self.shares(most(every, partial(self._take_layers, draft_layers)), draft_layers)
        if whole[0].gpu_layers == every or not self._take_experts(draft_layers, 0):
            return whole
        on_gpu = most(self.target.n_layer, partial(self._take_experts, draft_layers))
        split = self.shares(every, draft_layers, self.target.n_layer - on_gpu)
        return split if split[0].host_read < whole[0].host_read else whole

    def _take_layers(self, draft_layers: int, target_layers: int) -> bool:
        return gpus_hold(self.memory, self.shares(target_layers, draft_layers))

    def _take_experts(self, draft_layers: int, on_gpu: int) -> bool:
        """Whether the GPUs hold all layers with the experts of the last ``on_gpu``."""
        if not any(self.target.experts):
            return False
        every, kept = self.target.n_layer + 1, self.target.n_layer - on_gpu
        return gpus_hold(self.memory, self.shares(every, draft_layers, kept))


def most(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to ``high`` that fits, by bisection; 0 if none does."""
    if fits(high):
        return high
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
