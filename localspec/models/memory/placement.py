"""Places a pair on the devices of a machine, at one context and KV type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from localspec.models.gguf.sizes import Sizes
from localspec.models.memory.layers import Share, gpus_hold, place
from localspec.models.memory.machine import Memory


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
