"""Rows of logits are processed by the threads of the pass that made them."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from conftest import Files

from localspec.core import kernel
from localspec.core.kernel import Cut, RowKernel
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise, Stream
from localspec.core.values import Logits
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.team import end_threads, team

SAMPLING = Sampling(temperature=1.0)
CUT = Cut(SAMPLING.top_k, SAMPLING.top_p, SAMPLING.min_p, SAMPLING.temperature)


@pytest.fixture
def compiled() -> RowKernel:
    found = kernel.loaded()
    if found is None or team(2) is None:
        pytest.skip("the kernel is not compiled, or llama.cpp computes without OpenMP")
    return found


def rows(n: int) -> Logits:
    return np.random.default_rng(n).normal(0, 3, (n, 9_000)).astype(np.float32)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_a_team_gives_what_one_thread_gives(compiled: RowKernel, threads: int) -> None:
    some, noise = rows(11), Noise(5)

    def check() -> None:
        alone = LogitsProcessor(SAMPLING, 9_000)
        wanted = [alone(row, ()) for row in some]
        compiled.meet(team(threads))
        assert compiled.together == threads
        for start in (0, 3, 10):
            found = LogitsProcessor(SAMPLING, 9_000).ahead(some[start:])
            assert len(found) == (min(threads, 11 - start) if start < 10 else 0)
            for one, other in zip(found, wanted[start:], strict=False):
                np.testing.assert_array_equal(one.ids, other.ids)
                np.testing.assert_array_equal(one.probs, other.probs)
                for position in range(3):
                    drawn = noise.draw(one, position, Stream.SAMPLE)
                    assert drawn == noise.draw(other, position, Stream.SAMPLE)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(check).result()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted by /proc")
def test_an_idle_runtime_keeps_no_team(compiled: RowKernel) -> None:
    def threads() -> set[str]:
        return {place.name for place in Path("/proc/self/task").iterdir()}

    def check() -> None:
        before = threads()  # those of earlier tests may be ending
        compiled.meet(team(5))
        LogitsProcessor(SAMPLING, 9_000).ahead(rows(5))
        made = threads() - before
        assert len(made) >= 4
        end_threads()
        while threads() & made:  # they end a moment later; the test's own time limit is the bound
            time.sleep(0.01)
        assert len(LogitsProcessor(SAMPLING, 9_000).ahead(rows(5))) == 5  # a new one

    with ThreadPoolExecutor(1) as pool:
        pool.submit(check).result()


def test_a_row_of_nan_is_left_to_whoever_asks_for_it(compiled: RowKernel) -> None:
    some = rows(4)
    some[2, 7] = np.nan

    def found() -> int:
        compiled.meet(team(4))
        return len(compiled.distributions(some, CUT))

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(found).result() == 2


def test_only_the_thread_that_computed_has_a_team(compiled: RowKernel, files: Files) -> None:
    def computed() -> int:
        with closing(Model(files.target)) as model:
            context = Context(model, n_ctx=64, threads=2)
            context.forward([(0, [1, 2, 3], 1)])
            context.close()
        return compiled.together

    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as other:
        assert pool.submit(computed).result() == 2
        assert other.submit(lambda: compiled.together).result() == 1
