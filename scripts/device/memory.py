"""Memory: what was planned against what is allocated, and a device that is too small."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from device import pairs
from device.machine import on_device
from device.pairs import ALL, NONE, PARTLY, Case, Placement
from device.rows import Row, finding, judged, skipped
from localspec import GREEDY, Runtime
from localspec.bench.exactness import verify
from localspec.bench.workloads import VERIFY
from localspec.core.errors import LocalspecError
from localspec.core.options import Options
from localspec.llama import library
from localspec.loading.loader import load
from localspec.models.memory import fit as fitting
from localspec.models.memory.machine import Memory

_GROUP = "Memory"
_MIB = 1 << 20
_BUFFER = re.compile(r":\s+(\S+)\s+(model|KV|RS|compute|output) buffer size =\s+([\d.]+) MiB")
_COPIES = ("_REPACK", "_LOCALSPEC")
"""Buffers of weights in the order of llama.cpp's kernels, and of ours."""
_SPLITS = re.compile(r"graph.*splits = (\d+)")
_SPLITS_AT_MOST = 2
_TOLERATED = 0.10
_SMALL = (0.6, 0.05)
"""Parts of what all layers need, for devices that are too small."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Memory of a loaded pair, in bytes, and llama.cpp's log lines about its graphs."""

    planned: int
    allocated: int
    """Both on devices alone where layers are there, else on the host."""
    splits: tuple[int, ...]
    flash: tuple[str, ...]


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """The fit by placement, then devices that are too small."""
    cases = pairs.trained(folder)
    names = ("draft model",) if quick else ("draft model", "draft model, trees", "EAGLE-3")
    for name in names:
        for placement in (ALL, PARTLY, NONE):
            yield _fit(cases[name], placement)
    if not on_device():
        yield skipped(_GROUP, "a device that is too small", "this build computes on the processor")
        return
    for part in _SMALL:
        yield _too_small(cases["draft model"], part)
    yield _refused(cases["draft model"])
    yield skipped(_GROUP, "memory taken by others between the plan and the load, and in a reply",
                  "needs a second program on the device")  # fmt: skip


def _fit(case: Case, placement: Placement) -> Row:
    what = f"planned against allocated, {case.name}: {placement.name}"
    try:
        loaded = _loaded(case.options(placement))
    except LocalspecError as error:
        return finding(_GROUP, what, f"{type(error).__name__}: {error}")
    error = loaded.planned / loaded.allocated - 1 if loaded.allocated else 1.0
    text = (
        f"planned {loaded.planned / 1e6:.1f} MB, allocated {loaded.allocated / 1e6:.1f} MB "
        f"({error:+.0%}); graph splits {_listed(loaded.splits)}; {_listed(loaded.flash)}"
    )
    # More splits than two mean that some operation of every layer is computed elsewhere.
    whole = placement is not ALL or max(loaded.splits, default=0) <= _SPLITS_AT_MOST
    return judged(_GROUP, what, text, passed=abs(error) <= _TOLERATED and whole)


def _loaded(options: Options) -> Loaded:
    # Loaded in this thread: only what is logged here is heard.
    with library.listening() as lines, Runtime(load(options, None, None)) as runtime:
        shares = runtime.pair.parts.fit.shares
    on_gpu = any(share.gpus and sum(share.gpus) for share in shares)
    planned = sum(sum(share.gpus) if on_gpu else share.host for share in shares)
    splits = [int(found[1]) for line in lines if (found := _SPLITS.search(line))]
    flash = [line.split(":", 1)[1].strip() for line in lines if "Flash Attention" in line]
    allocated = _allocated(lines, on_gpu=on_gpu)
    return Loaded(planned, allocated, tuple(dict.fromkeys(splits)), tuple(dict.fromkeys(flash)))


def _allocated(lines: Iterable[str], *, on_gpu: bool) -> int:
    """Bytes of the buffers that llama.cpp allocated, on devices or on the host."""
    total = 0.0
    for line in lines:
        if found := _BUFFER.search(line):
            if found[1].endswith(_COPIES):
                continue  # copies of mapped weights, whose pages the system may drop
            host = found[1].startswith("CPU") or found[1].endswith("_Host")
            total += float(found[3]) * _MIB if host is not on_gpu else 0.0
    return int(total)


def _too_small(case: Case, part: float) -> Row:
    """A plan for a device with ``part`` of the memory that all layers need."""
    what = f"a device with {part:.0%} of what the pair needs"
    options = replace(case.options(ALL), gpu_layers=None, draft_gpu_layers=None)
    try:
        with Runtime.open(options) as runtime:
            need = sum(sum(share.gpus) for share in runtime.pair.parts.fit.shares)
        with _lied(int(part * need)), Runtime.open(options) as runtime:
            fit, notices = runtime.pair.parts.fit, runtime.info.notices
            found = verify(runtime, VERIFY[:1], [GREEDY], max_tokens=24, seed=1)
    except LocalspecError as error:
        return finding(_GROUP, what, f"{type(error).__name__}: {error}")
    layers = ", ".join(f"{s.role} {s.gpu_layers}/{s.n_layers}" for s in fit.shares)
    fewer = any(s.gpu_layers < s.n_layers for s in fit.shares)
    told = [note for note in notices if "GPU" in note or "context" in note]
    text = f"{layers} layers, {'exact' if found.exact else 'NOT exact'}, said: {_listed(told)}"
    return judged(_GROUP, what, text, passed=found.exact and fewer and bool(told))


def _refused(case: Case) -> Row:
    """A device that refuses an allocation of the plan: a context whose cache is too large."""
    what = "a device that refuses the allocation"
    options = replace(case.options(ALL), gpu_layers=None, draft_gpu_layers=None, context=1 << 21)
    try:
        with _lied(1 << 40), Runtime.open(options) as runtime:
            notices = runtime.info.notices
            found = verify(runtime, VERIFY[:1], [GREEDY], max_tokens=8, seed=1)
    except LocalspecError as error:
        named = type(error).__name__ == "OutOfMemoryError"
        return judged(_GROUP, what, f"refused in words: {error}", passed=named)
    told = [note for note in notices if "refused" in note or "in one piece" in note]
    if not told:
        return skipped(_GROUP, what, "the device took a cache for two million tokens")
    text = f"{'exact' if found.exact else 'NOT exact'} after it, said: {_listed(told)}"
    return judged(_GROUP, what, text, passed=found.exact)


@contextlib.contextmanager
def _lied(free: int) -> Iterator[None]:
    """Plans made in this block assume ``free`` bytes on every device."""
    look = fitting.read_memory

    def told() -> Memory:
        memory = look()
        gpus = tuple(replace(g, free=free, total=max(free, g.total)) for g in memory.gpus)
        return replace(memory, gpus=gpus, shared=False, host_free=max(memory.host_free, free))

    with mock.patch.object(fitting, "read_memory", told):
        yield


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values)) or "nothing"
