"""How long a build of llama.cpp will take, from a piece of compiling that is timed here and now."""

import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from llama_backend import Machine, build_jobs, cuda_architectures

PROBES = {"cpu": 400.0, "metal": 440.0, "cuda": 4800.0, "vulkan": 1800.0, "kernels": 100.0}
"""Core seconds of a build, as multiples of those of `PROBE`. Those of the processor (226 s against
0.55 s, GCC 14) and of our kernels with their check (55 s, GCC 12) were measured on a busy EPYC; the
others follow from core seconds of builds elsewhere."""
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


def expected(backend: str, machine: Machine, tools: Path) -> float:
    """Seconds of the build, with the neighbours that this machine has now; 0 where nothing tells.

    As many copies of the probe as the build will have jobs are compiled at once. ``tools`` is a
    folder that can be written to.
    """
    jobs = min(build_jobs(backend), _MOST_JOBS.get(backend, 1 << 10))
    # The first also reads the compiler from the disk.
    twice = [_timed(jobs, tools) for _ in range(2)]
    return seconds(backend, machine, min(twice), jobs)


def seconds(backend: str, machine: Machine, probe: float, jobs: int) -> float:
    """Seconds of the build where ``jobs`` probes at once take ``probe`` seconds."""
    cost = PROBES[backend]
    if backend == "cuda":
        cost *= 1 + _FURTHER_ARCHITECTURE * (cuda_architectures(machine, os.environ) - 1)
    return cost * probe / jobs


def _timed(jobs: int, folder: Path) -> float:
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

        began = time.monotonic()
        try:
            with ThreadPoolExecutor(jobs) as pool:
                done = all(pool.map(compile_once, range(jobs)))
        except OSError:  # the build will say what is wrong with the compiler
            return 0.0
        return time.monotonic() - began if done else 0.0


def in_words(wanted: float) -> str:
    """``about 3 min``; of two cores that are busy otherwise, a build can take many."""
    if not wanted:
        return "some minutes"
    return f"about {round(wanted)} s" if wanted < 90 else f"about {round(wanted / 60)} min"
