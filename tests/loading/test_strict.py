"""Strict mode is promised once a self-test has passed, remembered, and refused otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import gguf_tools
import pytest
from conftest import Files

from localspec import GREEDY, Message, Options, ReplyRequest, Runtime
from localspec.bench.exactness import Verification
from localspec.core.errors import StrictError, UsageError
from localspec.llama.adapters import Adapters
from localspec.llama.control_vectors import ControlVectors
from localspec.llama.model import Model
from localspec.llama.self_test import Difference
from localspec.llama.strict import Recipe
from localspec.loading import strict
from localspec.loading.resources import Parts
from localspec.models.gguf.model_file import ModelFile


class SelfTests:
    """Self-tests that find what they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: tuple[Difference, ...] = ()
        self.made = 0
        tests = self

        class Fake:
            def __init__(self, context: object) -> None:
                tests.made += 1

            def differences(self, on_progress: Callable[[float], None]) -> Iterator[Difference]:
                on_progress(1.0)
                yield from tests.found

        monkeypatch.setattr(strict, "SelfTest", Fake)


@pytest.fixture
def tests(monkeypatch: pytest.MonkeyPatch) -> SelfTests:
    return SelfTests(monkeypatch)


@pytest.fixture
def options(files: Files) -> Options:
    return Options(model=str(files.target), draft=str(files.draft), draft_max=3, strict=True)


def hello(*, draft: bool) -> ReplyRequest:
    messages = (Message("user", "hello"),)
    return ReplyRequest(messages, sampling=GREEDY, seed=1, max_tokens=24, draft=draft)


@pytest.mark.slow
def test_a_reply_has_the_bits_of_plain_decoding(options: Options) -> None:
    with Runtime.open(options) as runtime:
        assert runtime.info.strict.startswith(("at least 2 rows", "own kernels"))
        assert runtime.pair.target.leaves == 1
        plain = runtime.answer(hello(draft=False))
        drafted = runtime.answer(hello(draft=True))
    assert drafted.tokens == plain.tokens
    assert drafted.stats.drafted > 0


def test_a_self_test_is_made_once(tests: SelfTests, options: Options) -> None:
    for _ in range(2):
        Runtime.open(options).close()
    assert tests.made == 1
    Runtime.open(replace(options, remeasure=True)).close()
    assert tests.made == 2


def test_a_self_test_of_more_sequences_covers_fewer(tests: SelfTests, options: Options) -> None:
    for parallel, made in ((2, 1), (4, 1), (6, 2), (5, 2), (1, 2), (8, 3)):
        Runtime.open(replace(options, parallel=parallel, context=256)).close()
        assert (parallel, tests.made) == (parallel, made)


def test_without_strict_mode_nothing_is_tested(tests: SelfTests, options: Options) -> None:
    with Runtime.open(replace(options, strict=False)) as runtime:
        assert runtime.info.strict == ""
    assert tests.made == 0


def test_a_failure_is_refused_with_what_differed(tests: SelfTests, options: Options) -> None:
    tests.found = (Difference("passes of 8 tokens", 3e-6), Difference("a restored state", 0.0))
    with pytest.raises(StrictError, match=r"with passes of 8 tokens, a restored state .*3e-06"):
        Runtime.open(options)
    tests.found = ()
    Runtime.open(options).close()  # a failure is not remembered


def test_states_of_strict_mode_are_not_those_of_others(options: Options) -> None:
    # Our own kernels compute the same bits in both modes, so their states are shared.
    options = replace(options, kernels="llama")
    with Runtime.open(options) as exact, Runtime.open(replace(options, strict=False)) as usual:
        assert exact.pair.identity != usual.pair.identity


def test_a_recurrent_state_is_refused(tmp_path: Path) -> None:
    mamba = gguf_tools.write_mamba(tmp_path / "mamba.gguf")
    with pytest.raises(StrictError, match="recurrent state"):
        Runtime.open(Options(model=str(mamba), draft="none", strict=True))


def test_trees_become_chains(options: Options) -> None:
    with Runtime.open(replace(options, drafter=("tree",))) as runtime:
        assert any("chains, not trees" in notice for notice in runtime.info.notices)
        assert runtime.answer(hello(draft=True)).stats.drafted > 0


@pytest.mark.parametrize("changed", [{"verifier": "rejection"}, {"kv_type": "q8_0"}])
def test_settings_that_would_break_the_promise_are_refused(changed: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="strict mode"):
        Options(strict=True, **changed)  # type: ignore[arg-type]


def test_in_strict_mode_any_difference_of_logits_is_a_failure() -> None:
    assert Verification(1e-6, 0.0, (), {}).exact
    assert not Verification(1e-6, 0.0, (), {}, strict=True).exact
    assert Verification(0.0, 0.0, (), {}, strict=True).exact


def test_a_promise_is_kept_for_one_compilers_build(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = SimpleNamespace(gpu_layers=0, kv_type="f16")
    parts = cast(Parts, SimpleNamespace(fit=SimpleNamespace(target=share)))
    loading = strict.StrictLoading(parts, ModelFile(files.target), False, False)
    facts = {"buffers": ("CPU_Mapped",), "adapters": Adapters(), "vectors": ControlVectors()}
    facts |= {"digest": "as it was loaded"}
    model = cast(Model, SimpleNamespace(**facts))
    recipe = Recipe(extra_buffers=False, tiled=True)
    before = loading._file(model, recipe)
    monkeypatch.setattr(strict.soundness, "digest", lambda: "another")
    assert loading._file(model, recipe) != before
