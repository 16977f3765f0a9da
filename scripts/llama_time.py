"""How long a build of llama.cpp will take, from a piece of compiling that is timed here and now."""

import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from llama_backend import Machine, build_jobs, cuda_architectures

PROBES = {"cpu": 95.0, "metal": 105.0, "cuda": 1150.0, "vulkan": 430.0, "kernels": 20.0}
"""Core seconds of a build, as multiples of those of `PROBE`. Those of the processor and of our
kernels, with their check, were measured, with GCC 12; the others follow from core seconds of builds
elsewhere."""
_MOST_JOBS = {"kernels": 3}
"""What has fewer parts than a machine may have cores."""
_FURTHER_ARCHITECTURE = 0.7
"""Part of a CUDA build that each further architecture costs again: its device code."""
PROBE = """\
#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <vector>
int probe(const std::string & text) {
    std::map<std::string, std::vector<long>> found;
    const std::regex words("([a-z]+)([0-9]*)");
    for (std::sregex_iterator at(text.begin(), text.end(), words), end; at != end; ++at)
        found[at->str()].push_back(at->position());
    long sum = 0;
    for (auto & one : found) {
        std::sort(one.second.begin(), one.second.end());
        sum += one.second.front();
    }
    return (int) sum;
}
"""
_PATIENCE_S = 120.0


def expected(backend: str, machine: Machine, tools: Path) -> float:
    """Seconds of the build, with the neighbours that this machine has now; 0 where nothing tells.

    As many copies of the probe as the build will have jobs are compiled at once. ``tools`` is a
    folder that can be written to.
    """
    jobs = min(build_jobs(backend), _MOST_JOBS.get(backend, 1 << 10))
    return seconds(backend, machine, _timed(jobs, tools), jobs)


def seconds(backend: str, machine: Machine, probe: float, jobs: int) -> float:
    """Seconds of the build where ``jobs`` probes at once take ``probe`` seconds."""
    cost = PROBES[backend]
    if backend == "cuda":
        cost *= 1 + _FURTHER_ARCHITECTURE * (cuda_architectures(machine) - 1)
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
