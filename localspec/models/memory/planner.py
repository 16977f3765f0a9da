"""Plans how a pair is placed on a machine: GPU layers, context, KV type, threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from localspec.core.errors import OutOfMemoryError, UsageError
from localspec.models.gguf.sizes import KV_BYTES, Sizes
from localspec.models.memory.layers import (
    BATCH,
    Placement,
    Share,
    host_holds,
    on_gpus,
    within,
)
from localspec.models.memory.machine import Memory

FITS, PARTLY, CPU_ONLY = "fits on GPU", "partly on GPU", "CPU only"
DEFAULT_CONTEXT = 8192
"""Tokens of context by default: a KV cache takes its memory from the start."""
_SMALLEST_CONTEXT = 2048
"""Tokens; a smaller context is used only on request."""
_ROOM_TO_CHAT = 4096
"""Tokens; the context is not reduced below this to get all layers on a GPU."""
_STEP = 0.8
"""After a refused allocation, a GPU is planned with this share of the bytes planned before."""
_ROOMY = 0.7
"""Share of the free memory; a plan within it tolerates estimates a few per cent too small."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """Settings that the user fixed; None leaves a setting to the planner."""

    context: int | None = None
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    cpu_experts: int | None = None
    kv_type: str | None = None
    threads: int | None = None
    require_draft: bool = False
    sequences: int = 1
    """Requests at a time; each has a KV cache of the whole context."""
    strict: bool = False
    """Without flash attention, whose buffers do not grow with the context."""

    def __post_init__(self) -> None:
        if self.kv_type is not None and self.kv_type not in KV_BYTES:
            raise UsageError(f"no KV type {self.kv_type!r}; there are: {', '.join(KV_BYTES)}")


@dataclass(frozen=True, slots=True)
class Fit:
    """How a pair is placed on a machine."""

    target: Share
    draft: Share | None
    context: int
    """Tokens."""
    threads: int
    memory: Memory
    wishes: Wishes
    notes: tuple[str, ...] = ()
    """Lines on what was reduced to make it fit, and on estimates that are uncertain."""
    left_out: str | None = None
    """Why the draft is left out; None if it is not."""

    @property
    def shares(self) -> tuple[Share, ...]:
        """Target and, if there is one, draft."""
        return (self.target,) if self.draft is None else (self.target, self.draft)

    @property
    def verdict(self) -> str:
        """FITS, PARTLY or CPU_ONLY."""
        if all(s.gpu_layers == s.n_layers and not s.host_experts for s in self.shares):
            return FITS
        return PARTLY if any(s.gpu_layers for s in self.shares) else CPU_ONLY

    def spares(self, other: Fit) -> bool:
        """Whether it takes nothing away from what ``other`` has, and leaves as much memory free as
        it adds.
        """
        layers = [(s.gpu_layers, s.host_experts, s.kv_type) for s in self.shares]
        same = layers == [(s.gpu_layers, s.host_experts, s.kv_type) for s in other.shares]
        if not same or self.context < other.context or self.left_out != other.left_out:
            return False
        more = sum(s.host for s in self.shares) - sum(s.host for s in other.shares)
        left = replace(self.memory, host_free=self.memory.host_free - more)
        return within(left, self.shares)

    @property
    def tight(self) -> bool:
        """Whether an error of a few per cent could change what fits."""
        roomy = replace(
            self.memory,
            host_free=int(self.memory.host_free * _ROOMY),
            gpus=tuple(replace(g, cap=int(g.usable * _ROOMY)) for g in self.memory.gpus),
        )
        return not within(roomy, self.shares)


def plan(target: Sizes, draft: Sizes | None, memory: Memory, wishes: Wishes | None = None) -> Fit:
    """The best placement of a pair: all on GPUs if a smaller context allows it, else what fits.

    Raises:
        OutOfMemoryError: nothing fits within the user's settings; with the numbers.
        UsageError: the target cannot have the requested KV type.
    """
    asked = wishes or Wishes()
    if asked.kv_type is not None and not target.takes(asked.kv_type):
        raise UsageError(
            f"{target.name} has attention heads of {target.head_size}, and a {asked.kv_type} KV "
            "cache needs a multiple of 32; use --kv-type f16"
        )
    fit = _plan(target, draft, memory, asked)
    if fit is None and draft is not None and not asked.require_draft:
        fit = _plan(target, None, memory, asked)
        if fit is not None:
            fit = replace(fit, left_out=f"{draft.name} does not fit next to {target.name}")
    if fit is None:
        raise OutOfMemoryError(_refusal(target, draft, memory, asked))
    return fit


def _plan(target: Sizes, draft: Sizes | None, memory: Memory, asked: Wishes) -> Fit | None:
    """The best choice: all on GPUs, else the first that fits by the estimates, else the first."""
    best: tuple[int, Fit] | None = None
    for context, kv_type in _choices(target, draft, asked):
        fit = _placed(target, draft, memory, asked, context, kv_type)
        if fit is None:
            continue
        roomy = asked.context or context >= min(_ROOM_TO_CHAT, usual_context(target))
        rank = 0 if not within(memory, fit.shares) else 2 if roomy and fit.verdict == FITS else 1
        if best is None or rank > best[0]:
            best = rank, fit
        if rank == 2 or not memory.gpus:
            break
    return _explained(best[1], target, draft, asked) if best else None


def usual_context(target: Sizes) -> int:
    """Tokens of context by default, where there is room."""
    return min(target.context or DEFAULT_CONTEXT, DEFAULT_CONTEXT)


def _choices(target: Sizes, draft: Sizes | None, asked: Wishes) -> Iterator[tuple[int, str]]:
    """Contexts and KV types, best first."""
    context, kv_type = asked.context or usual_context(target), asked.kv_type or "f16"
    yield context, kv_type
    if draft is not None and asked.context is None and asked.kv_type is None:
        # Drafts are verified in passes over several tokens, for which GPUs convert a quantized
        # cache to f16, layer by layer, every time.
        shorter = context // 2
        while shorter >= _ROOM_TO_CHAT:
            yield shorter, kv_type
            shorter //= 2
    if asked.kv_type is None and target.takes("q8_0") and (draft is None or draft.takes("q8_0")):
        kv_type = "q8_0"
        yield context, kv_type
    while asked.context is None and context // 2 >= _SMALLEST_CONTEXT:
        context //= 2
        yield context, kv_type


def _placed(
    target: Sizes, draft: Sizes | None, memory: Memory, asked: Wishes, n_ctx: int, kv_type: str
) -> Fit | None:
    """The most GPU layers at this context; None if it does not fit at all."""
    pair = Placement(target, draft, memory, n_ctx, kv_type, draft_kv_type(draft, kv_type))

    def fit(shares: tuple[Share, ...]) -> Fit:
        two = shares[1] if len(shares) > 1 else None
        return Fit(shares[0], two, n_ctx, asked.threads or 1, memory, asked)

    draft_choices = _draft_choices(draft, memory, asked)
    for draft_layers in draft_choices:
        shares = pair.best(draft_layers, asked.gpu_layers, asked.cpu_experts)
        if within(memory, shares):
            return fit(shares)
    if asked.gpu_layers is not None:  # the user's number overrides the estimate of what a GPU holds
        shares = pair.shares(asked.gpu_layers, draft_choices[-1], asked.cpu_experts or 0)
        if memory.shared or host_holds(memory, shares):
            return fit(shares)
    return None


def _draft_choices(draft: Sizes | None, memory: Memory, asked: Wishes) -> list[int]:
    """GPU layers of the draft: all or none, since it runs several times a round; never on workers,
    where each of its tokens would cost a round trip.
    """
    if draft is None or not memory.own_gpus:
        return [0]
    if asked.draft_gpu_layers is not None:
        return [asked.draft_gpu_layers]
    return [draft.n_layer + 1, 0]


def draft_kv_type(draft: Sizes | None, kv_type: str) -> str:
    """KV type of the draft: below q8_0 a cache costs more acceptance than it saves memory."""
    wanted = kv_type if KV_BYTES.get(kv_type, 0) >= KV_BYTES["q8_0"] else "q8_0"
    return wanted if draft is None or draft.takes(wanted) else "f16"


def _explained(fit: Fit, target: Sizes, draft: Sizes | None, asked: Wishes) -> Fit:
    usual = usual_context(target)
    if asked.context is None and fit.context < usual:
        fit = _noted(fit, f"the context is {fit.context} tokens instead of {usual}, to fit")
    if asked.kv_type is None and fit.target.kv_type != "f16":
        fit = _noted(fit, f"the KV cache is {fit.target.kv_type} instead of f16, to fit")
    if waiting := _left_on_host(fit):
        names = fit.memory.devices
        have = "has" if names == "the GPU" else "have"
        text = f"{names} {have} room for {' and '.join(waiting)}; the rest is computed on the CPU"
        fit = _noted(fit, text)
    used = zip(on_gpus(fit.memory, fit.shares), fit.memory.gpus, strict=True)
    remote = sum(n for n, gpu in used if gpu.worker)
    total, now = sum(share.total for share in fit.shares) - remote, fit.memory.free_now
    if now is not None and total > now:
        fit = _noted(
            fit,
            f"{_gb(total)} are needed and {_gb(now)} are free now: the system compresses memory of "
            "other programs",
        )
    if not within(fit.memory, fit.shares):
        fit = _noted(fit, "these GPU layers were requested; by the estimates they do not fit")
    for sizes in (target, draft):
        for doubt in sizes.doubts if sizes else ():
            fit = _noted(fit, f"{sizes.name}: {doubt}" if sizes else doubt)
    return fit


def _left_on_host(fit: Fit) -> list[str]:
    """Text about each model that is not all on the GPUs although the user set no GPU layers."""
    if not fit.memory.gpus:
        return []
    first, experts = fit.target.host_experts, list[str]()
    if first:
        experts = [f"all of {fit.target.name} but the experts of {first} layers"]
    asked = (fit.wishes.gpu_layers, fit.wishes.draft_gpu_layers if fit.memory.own_gpus else 0)
    layers = [
        f"{share.gpu_layers} of {share.n_layers} layers of {share.name}"
        for share, layers in zip(fit.shares, asked, strict=False)
        if layers is None and share.gpu_layers < share.n_layers
    ]
    return experts + layers


def _noted(fit: Fit, note: str) -> Fit:
    return replace(fit, notes=(*fit.notes, note))


def _refusal(target: Sizes, draft: Sizes | None, memory: Memory, asked: Wishes) -> str:
    *_, (context, kv_type) = _choices(target, draft, asked)
    kv, compute = target.kv_all(context, kv_type), target.compute(context, BATCH)
    room = memory.host_free
    room += sum(g.free for g in memory.gpus if g.worker or not memory.shared)
    where = "memory" if memory.shared or not memory.gpus else "memory on GPU and host"
    if memory.workers:
        where = "memory on workers and here"
    needs = f"{_gb(target.weights)} for its weights, {_gb(kv)} for its KV cache"
    advice = "use a smaller --ctx" if kv > target.weights else "choose a smaller quantization"
    if asked.require_draft and draft is not None:
        needs += f", {_gb(draft.weights + draft.kv_all(context, 'q8_0'))} for its draft"
    return (
        f"{target.name} with a context of {context} tokens needs {needs} and {_gb(compute)} to "
        f"compute, and {_gb(room)} of {where} are free; {advice}, or close other programs"
    )


def _gb(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e8 else f"{n / 1e9:.3f} GB"


def step_down(fit: Fit) -> Fit | None:
    """A smaller plan after an allocation was refused; None if the user fixed everything.

    Raises:
        OutOfMemoryError: nothing smaller fits.
    """
    asked, target, draft = fit.wishes, fit.target.sizes, fit.draft.sizes if fit.draft else None
    used = on_gpus(fit.memory, fit.shares)
    if any(used) and asked.gpu_layers is None:
        gpus = tuple(
            replace(gpu, cap=int(n * _STEP)) for gpu, n in zip(fit.memory.gpus, used, strict=True)
        )
        return _as_before(fit, plan(target, draft, replace(fit.memory, gpus=gpus), asked))
    if asked.context is None and fit.context // 2 >= _SMALLEST_CONTEXT:
        asked = replace(asked, context=fit.context // 2)
    elif asked.kv_type is None and fit.target.kv_type == "f16" and target.takes("q8_0"):
        asked = replace(asked, kv_type="q8_0")
    else:
        return None
    smaller = plan(target, draft, fit.memory, asked)
    note = f"context {smaller.context}, KV cache {smaller.target.kv_type}"
    return _noted(_as_before(fit, smaller), note)


def _as_before(fit: Fit, smaller: Fit) -> Fit:
    """A smaller plan with what does not depend on its size. A draft that was left out stays out:
    none was planned for.
    """
    return replace(smaller, threads=fit.threads, left_out=smaller.left_out or fit.left_out)
