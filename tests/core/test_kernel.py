"""The compiled kernel for rows of logits gives what the numpy code gives."""

import math
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core import kernel
from localspec.core.errors import LocalspecError, NotNumbersError
from localspec.core.kernel import RowKernel, build
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise, Stream
from localspec.core.values import Distribution, Logits
from localspec.drafters.model.proposal import confidence

pytestmark = pytest.mark.skipif(build.compiler({}) is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RowKernel]:
    path = tmp_path_factory.mktemp("kernel") / "rows.so"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "library", lambda: path)
        patch.delenv(kernel.VARIABLE, raising=False)
        build.build({})
        kernel.loaded.cache_clear()
        found = kernel.loaded()
        assert found is not None
        yield found
    kernel.loaded.cache_clear()


def row_of(seed: int, v: int, kind: str) -> Logits:
    rng = np.random.default_rng(seed)
    row = rng.normal(0, 3, v).astype(np.float32)
    if kind == "ties":
        row = np.round(row)
    if kind == "few":
        row[rng.random(v) < 0.98] = -np.inf
        row[rng.integers(v)] = 1.0
    if kind == "rising":
        row = np.sort(row)
    return row


@given(
    seed=st.integers(0, 10_000),
    v=st.sampled_from([3, 127, 128, 1023, 2048, 5000, 17_001, 65_537]),
    kind=st.sampled_from(["usual", "ties", "few", "rising"]),
    k=st.one_of(st.just(0), st.integers(1, kernel.MOST)),
    top_p=st.sampled_from([0.0, 0.3, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
    temperature=st.sampled_from([0.0, 0.001, 0.8, 1.0, 5.0]),
)
def test_distribution_and_draw_equal_the_reference(
    compiled: RowKernel,
    seed: int,
    v: int,
    kind: str,
    k: int,
    top_p: float,
    min_p: float,
    temperature: float,
) -> None:
    row = row_of(seed, v, kind)
    sampling = Sampling(temperature=temperature, top_k=k, top_p=top_p, min_p=min_p)
    process = LogitsProcessor(sampling, v)
    found, wanted = process(row, ()), process.by_reference()(row, ())
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_allclose(found.probs, wanted.probs, rtol=1e-13)
    noise = Noise(seed)
    for position in range(5):
        drawn = noise.draw(found, position, Stream.SAMPLE)
        again = Distribution(found.ids, found.probs)  # which the kernel has not made itself
        assert drawn == noise.draw(again, position, Stream.SAMPLE)
        assert drawn == noise.by_reference().draw(wanted, position, Stream.SAMPLE)


@given(seed=st.integers(0, 10_000), v=st.sampled_from([1, 64, 1024, 3000]), k=st.integers(2, 60))
def test_the_best_are_those_of_a_sort(compiled: RowKernel, seed: int, v: int, k: int) -> None:
    row = row_of(seed, v, "ties")
    found = compiled.best(row, k)
    assert found is not None
    assert found.tolist() == sorted(np.argsort(-row, kind="stable")[:k].tolist())


def test_threads_do_not_disturb_each_other(compiled: RowKernel) -> None:
    rows = [row_of(seed, 3000, "usual") for seed in range(8)]
    process, noise = LogitsProcessor(Sampling(temperature=1.0), 3000), Noise(1)

    def drawn(seed: int) -> list[int]:
        row = rows[seed]
        return [noise.draw(process(row, ()), i, Stream.SAMPLE) for i in range(400)]

    expected = [drawn(seed) for seed in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert [*pool.map(drawn, range(8))] == expected
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("odd", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 1023, 1024, 4999])
def test_what_is_no_number_is_refused(compiled: RowKernel, odd: float, place: int) -> None:
    row = row_of(1, 5000, "usual")
    row[place] = odd
    assert compiled.head(row, 8.0) is None
    with pytest.raises(NotNumbersError):
        LogitsProcessor(Sampling(temperature=1.0), 5000)(row, ())


def test_rows_of_another_layout_are_left_to_the_reference(compiled: RowKernel) -> None:
    row = row_of(1, 5000, "usual")
    assert compiled.takes(row, 40)
    assert not compiled.takes(row[::2], 40)
    assert not compiled.takes(row.astype(np.float64), 40)
    assert not compiled.takes(row, 5000)
    assert not compiled.takes(row, 0)
    assert compiled.head(row[::2], 8.0) is None


def test_confidence_of_a_greedy_draft_equals_the_reference(
    compiled: RowKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = row_of(5, 20_000, "usual")
    q = LogitsProcessor(Sampling(temperature=0.0), len(row))(row, ())
    by_kernel = confidence(q, row)
    monkeypatch.setattr(kernel, "loaded", lambda: None)
    assert by_kernel == pytest.approx(confidence(q, row), rel=1e-5)


def test_bias_and_penalties_come_before_the_kernel(compiled: RowKernel) -> None:
    row = row_of(3, 5000, "usual")
    best = int(row.argmax())
    sampling = Sampling(temperature=1.0, repeat_penalty=3.0, logit_bias=((best, -50.0),))
    process = LogitsProcessor(sampling, 5000)
    found, wanted = process(row, [7, 9]), process.by_reference()(row, [7, 9])
    np.testing.assert_array_equal(found.ids, wanted.ids)
    assert best not in found.ids


# -- building ------------------------------------------------------------------------------------


def of(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rows.c").write_text(source)
    monkeypatch.setattr(kernel, "SOURCE", tmp_path / "rows.c")
    monkeypatch.setattr(kernel, "library", lambda: tmp_path / "lib" / "rows.so")
    return tmp_path / "lib" / "rows.so"


def test_a_kernel_that_computes_something_else_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = kernel.SOURCE.read_text().replace("reached >= top_p * total", "reached > total")
    library = of(source, tmp_path, monkeypatch)
    with pytest.raises(LocalspecError, match="is not right: other tokens"):
        build.build({})
    assert [path.name for path in library.parent.iterdir()] == [".lock"]


def test_a_source_that_does_not_compile_is_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of("int x = ;\n", tmp_path, monkeypatch)
    with pytest.raises(LocalspecError, match="does not compile the kernel: "):
        build.build({})


def test_without_a_compiler_the_command_says_so_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of(kernel.SOURCE.read_text(), tmp_path, monkeypatch)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert build.main() == 1
    assert "there is no C compiler" in capsys.readouterr().err
    kernel.loaded.cache_clear()
    assert kernel.loaded() is None
    kernel.loaded.cache_clear()


def test_one_variable_switches_it_off(compiled: RowKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernel.VARIABLE, "off")
    kernel.loaded.cache_clear()
    assert kernel.loaded() is None
    kernel.loaded.cache_clear()
