"""How long a build of llama.cpp will take, from a piece of compiling that is timed here and now."""

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from llama_backend import Machine, build_jobs, cuda_architectures
from llama_pace import Expected

PROBES = {"cpu": 400.0, "metal": 440.0, "cuda": 5600.0, "vulkan": 1800.0, "kernels": 100.0}
"""Core seconds of a build, as multiples of those of `PROBE`. Those of the processor (226 s against
0.55 s, GCC 14) and of our kernels with their check (55 s, GCC 12) were measured on a busy EPYC,
those of CUDA for one architecture (2,100 s against 0.37 s, nvcc 13.0) on a Xeon; the others follow
from core seconds of builds elsewhere."""
_MOST_JOBS = {"kernels": 3}
"""What has fewer parts than a machine may have cores."""
_FURTHER_ARCHITECTURE = 0.7
"""Part of a CUDA build that each further architecture costs again: its device code."""
PROBE = """\
#include <algorithm>
#include <map>
#include <string>
#include <vector>
int probe(const std::string & text) {
    std::map<std::string, std::vector<int>> found;
    std::string word;
    for (size_t at = 0; at <= text.size(); at++) {
        if (at < text.size() && text[at] != ' ') { word += text[at]; continue; }
        found[word].push_back((int) at);
        word.clear();
    }
    int sum = 0;
    for (auto & one : found) {
        std::sort(one.second.begin(), one.second.end());
        sum += one.second.front();
    }
    return sum;
}
"""
_PATIENCE_S = 120.0
_BUSY = 1.3
"""Times the seconds without neighbours from which on both are said."""
_LOOK_S = 3.0
"""Seconds of probes beside neighbours, whose work comes and goes."""


@dataclass(frozen=True)
class Probes:
    """The time of one round of probes: as many at once as a build has jobs."""

    wall: float
    """Seconds until all were compiled."""
    processor: float
    """Processor seconds of all."""


def expected(backend: str, machine: Machine, tools: Path, times: float = 1.0) -> Expected:
    """The time of ``times`` the usual build, without neighbours and with those that are there now.

    As many copies of the probe as the build will have jobs are compiled at once. ``tools`` is a
    folder that can be written to.
    """
    jobs = min(build_jobs(backend), _MOST_JOBS.get(backend, 1 << 10))
    _timed(jobs, tools)  # reads the compiler from the disk
    found = [_timed(jobs, tools)]
    while all(_busy(one, jobs) for one in found) and sum(one.wall for one in found) < _LOOK_S:
        found.append(_timed(jobs, tools))
    return of_probes(backend, machine, found, jobs, times)


def _busy(probes: Probes, jobs: int) -> bool:
    return probes.wall > _BUSY * probes.processor / jobs


def of_probes(
    backend: str, machine: Machine, found: Sequence[Probes], jobs: int, times: float = 1.0
) -> Expected:
    """The time of a build of ``jobs`` jobs by that of the probes; one of no seconds where a
    compiler failed.
    """
    work = times * PROBES[backend]
    if backend == "cuda":
        work *= 1 + _FURTHER_ARCHITECTURE * (cuda_architectures(machine, os.environ) - 1)
    if not all(one.wall for one in found):
        return Expected(work, 0.0, 0.0, 0.0)
    probe = min(one.processor for one in found) / jobs
    each = sum(one.wall for one in found) / len(found)
    return Expected(work, probe, work * probe / jobs, work * each / jobs)


def _timed(jobs: int, folder: Path) -> Probes:
    command = [*(os.environ.get("CXX", "").split() or ["c++"]), "-O3", "-std=c++17", "-c"]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        source = Path(scratch) / "probe.cpp"
        source.write_text(PROBE, encoding="ascii")

        def compile_once(number: int) -> bool:
            line = [*command, str(source), "-o", str(source.with_name(f"{number}.o"))]
            with subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as process:
                try:
                    return process.wait(_PATIENCE_S) == 0
                except subprocess.TimeoutExpired:
                    process.kill()
                    return False

        began, before = time.monotonic(), _of_children()
        try:
            with ThreadPoolExecutor(jobs) as pool:
                done = all(pool.map(compile_once, range(jobs)))
        except OSError:  # the build will say what is wrong with the compiler
            return Probes(0.0, 0.0)
        if not done:
            return Probes(0.0, 0.0)
        return Probes(time.monotonic() - began, _of_children() - before)


def _of_children() -> float:
    """Processor seconds of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_words(wanted: Expected) -> str:
    """``about 3 min``, or ``3 to 9 min, 9 if it stays as busy`` beside other work."""
    if not wanted.seconds:
        return "some minutes"
    low, high, unit = round(wanted.alone), round(wanted.seconds), "s"
    if high >= 90:
        low, high, unit = max(1, round(low / 60)), round(high / 60), "min"
    if wanted.seconds < _BUSY * wanted.alone or low == high:
        return f"about {high} {unit}"
    return f"{low} to {high} {unit}, {high} if it stays as busy"
