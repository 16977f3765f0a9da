"""How far a step of compiling is, and the seconds that remain of it.

Work is counted in probes, a small piece of C++ that `llama_time` compiles before. Of a build by
ninja it is known by file. What was done, and how fast, is the processor time of the step's
processes: so the seconds that remain follow what the step gets of this machine just now, whatever
its neighbours do.
"""

import math
import os
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_SLOW = {
    24: "llama-model.cpp",
    21: "ops.cpp",
    19: "llama-model-loader.cpp unicode.cpp",
    17: "llama-sampler.cpp",
    16: "llama-kv-cache.cpp llama-quant.cpp",
    15: "llama-vocab.cpp mmq.cpp",
    14: "ggml-quants.c llama-grammar.cpp",
    12: "llama-kv-cache-dsv4.cpp",
    11: "llama-context.cpp llama-graph.cpp repack.cpp unity_1_cxx.cxx",
    10: "ggml-backend-meta.cpp gguf.cpp sgemm.cpp unity_3_cxx.cxx unity_8_cxx.cxx",
    9: "tiled.cpp unity_5_cxx.cxx",
    8: "unity_4_cxx.cxx",
    7: "llama-batch.cpp llama-memory-hybrid-idx.cpp unity_2_cxx.cxx",
    6: (
        "binary-ops.cpp llama-chat.cpp unary-ops.cpp unity_0_cxx.cxx unity_6_cxx.cxx "
        "unity_7_cxx.cxx unity_9_cxx.cxx"
    ),
    5: "ggml.c llama-adapter.cpp llama-memory-hybrid-iswa.cpp",
    4: (
        "ggml-backend.cpp llama-arch.cpp llama-kv-cache-dsa-iswa.cpp llama-kv-cache-dsa.cpp "
        "llama-kv-cache-iswa.cpp llama-kv-cache-msa.cpp llama-memory-hybrid.cpp "
        "llama-memory-recurrent.cpp llama.cpp"
    ),
    3: "ggml-backend-reg.cpp ggml-cpu.c llama-model-saver.cpp tiled-kernel.cpp",
    2: "ggml-opt.cpp",
}
"""Files of the pinned llama.cpp that take longer than most, by probes (GCC 12, x86-64)."""
WEIGHTS = {f"{name}.o": float(work) for work, names in _SLOW.items() for name in names.split()}
"""Probes by name of the object."""
_OTHERS = 1.3
_DEVICE = {
    "mmq-instance": 120.0,
    "mmvq": 65.0,
    "mmf-instance": 55.0,
    "fattn-vec": 50.0,
    "mmvf": 40.0,
    "fattn-mma": 25.0,
    "fattn-tile-instance": 20.0,
}
"""CUDA files that take longer than most, by the beginnings of their names: probes for one
architecture (nvcc 13.0)."""
_OTHER_DEVICE = 8.0
_WINDOW_S = 45.0
"""Seconds over which the speed is measured."""
_TRUST_S = 20.0
"""Seconds after which the speed that was expected no longer counts."""
_PRIOR = 0.03
"""Part of the work that the probe's own processor time counts as, beside that of finished files."""
_LEAST = 0.1
"""Part of the work of unfinished files that remains at least."""
_PROGRESS = re.compile(r"\[(\d+)/(\d+)\]")
_OBJECT = re.compile(r"(?:-o|object) (\S+\.o)(?:\s|$)")
_EDGE = re.compile(r"^build (\S+\.o): ", re.MULTILINE)


@dataclass(frozen=True)
class Expected:
    """What a step of compiling should cost here."""

    work: float
    """Probes."""
    probe: float
    """Processor seconds of one."""
    alone: float
    """Seconds of the step on this machine without its neighbours."""
    seconds: float
    """Seconds of it beside the neighbours that it has now; 0 where nobody knows."""


@dataclass(frozen=True)
class Used:
    """Processor seconds of the processes of a step."""

    ended: float
    """Processor seconds of files that ninja is done with; 0 without ninja."""
    running: float
    """Processor seconds of files that are being compiled; without ninja, of all."""


def used_below(root: int) -> Used | None:
    """What the processes from ``root`` down have used; None where the system does not tell."""
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    own: dict[int, float] = {}
    ended: dict[int, float] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            # 16247 (cat) R 16241 ..., the 14th to 17th field being ticks of processor time.
            head, _, tail = place.read_text(encoding="utf-8", errors="replace").rpartition(")")
        except OSError:  # it has just ended
            continue
        pid, fields = int(place.parent.name), tail.split()
        names[pid] = head.partition("(")[2]
        children.setdefault(int(fields[1]), []).append(pid)
        ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15]]
        own[pid], ended[pid] = sum(ticks[:2]), sum(ticks[2:])
    if root not in own:
        return None
    below = _below(root, children)
    ninja = next((pid for pid in below if names[pid].startswith("ninja")), None)
    if ninja is None:
        return Used(0.0, sum(own[pid] + ended[pid] for pid in below))
    compilers = _below(ninja, children)[1:]
    return Used(ended[ninja], sum(own[pid] + ended[pid] for pid in compilers))


def _below(root: int, children: dict[int, list[int]]) -> list[int]:
    found = [root]
    for pid in found:  # grows meanwhile
        found += children.get(pid, [])
    return found


def _device(name: str) -> float:
    """Work of a CUDA file, relative to others."""
    return next((w for start, w in _DEVICE.items() if name.startswith(start)), _OTHER_DEVICE)


class Pace:
    """The work of one step, what of it is done, and its speed."""

    def __init__(
        self,
        expected: Expected,
        build: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[int], Used | None] = used_below,
    ) -> None:
        """``build`` is the folder where ninja builds, None for a step without ninja."""
        self._expected = expected
        self._build = build
        self._clock, self._used = clock, used
        self._started = clock()
        self._root = 0
        self._made = set() if build is None else {str(p) for p in build.rglob("*.o")}
        self._left: dict[str, float] = {}
        """Work by file that is not compiled; nothing without ninja."""
        self._done, self._rest = 0.0, expected.work
        self._begun, self._over = build is None, False
        self._samples: deque[tuple[float, float]] = deque()
        """Moments, and the processor seconds until then."""

    def begin(self, root: int) -> None:
        """The process of the step is there."""
        self._root = root

    def read(self, line: str) -> None:
        """Read the progress, if any, in a line of the step's output."""
        progress = _PROGRESS.match(line)
        if progress is None or self._build is None:
            return
        if not self._begun:
            self._begun, self._left = True, self._planned(int(progress[2]))
            self._rest = sum(self._left.values())
            self._samples = deque()  # a new one: another thread may look at the old one
        made = _OBJECT.search(line)
        for name in (progress[1], made[1] if made else ""):
            work = self._left.pop(name, 0.0)
            self._done, self._rest = self._done + work, self._rest - work
        self._over = progress[1] == progress[2]

    def _planned(self, steps: int) -> dict[str, float]:
        """Work by object that is not there; by number, each the same, where files are unknown."""
        assert self._build is not None
        work = self._expected.work
        try:
            found = _EDGE.findall((self._build / "build.ninja").read_text(encoding="utf-8"))
        except OSError:
            found = []
        weights = {name: WEIGHTS.get(Path(name).name, _OTHERS) for name in found}
        if device := [name for name in found if name.endswith(".cu.o")]:
            rest = work - sum(weights.values()) + _OTHERS * len(device)
            slow = {name: _device(Path(name).name) for name in device}
            whole = sum(slow.values())
            weights |= {name: rest * one / whole for name, one in slow.items()}
        if not found or len(found) < steps / 2:  # it makes other things, such as shaders
            weights = {str(number + 1): 1.0 for number in range(steps)}
        scale = work / sum(weights.values())
        left = {n: w * scale for n, w in weights.items() if str(self._build / n) not in self._made}
        # With other flags ninja compiles again what is there.
        return left or {str(number + 1): work / len(weights) for number in range(steps)}

    def left(self) -> float | None:
        """Seconds that remain; None where nothing tells."""
        now, expected = self._clock(), self._expected
        if self._over:
            return 0.0
        if not expected.seconds:
            return None
        if not self._begun:
            return max(0.0, expected.seconds - (now - self._started)) or None
        used, window = self._used(self._root), _WINDOW_S
        if used is None:  # of a moment too few files tell
            used, window = Used(self._done * expected.probe, 0.0), math.inf
        prior = _PRIOR * expected.work
        probe = (used.ended + prior * expected.probe) / (self._done + prior)
        remaining = probe * self._rest - used.running
        speed = self._speed(now, used.ended + used.running, window)
        if self._build is not None:
            # What runs may take longer than it should; a file is compiled by one core.
            remaining = max(remaining, _LEAST * probe * self._rest)
            speed = min(speed, len(self._left))
            if not self._left:
                return 0.0
        return remaining / speed if remaining > 0 and speed > 0 else None

    def _speed(self, now: float, seconds: float, window: float) -> float:
        """Processor seconds per second, in the last ``window`` seconds."""
        samples = self._samples
        samples.append((now, seconds))
        while len(samples) > 2 and samples[1][0] <= now - window:
            samples.popleft()
        began, before = samples[0]
        trust = max(0.0, _TRUST_S - (now - began))
        usual = self._expected.work * self._expected.probe / self._expected.seconds
        return (seconds - before + trust * usual) / (now - began + trust)
