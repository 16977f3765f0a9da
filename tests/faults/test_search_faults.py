"""The search for faults itself: a short part with fixed seeds, and that it finds what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from faults import chances, on_tables
from faults.registry import SEARCHES
from faults.runner import Runner, Search, Seeds
from localspec.core.noise import Noise
from localspec.core.values import Draft, TargetRows, Verdict
from localspec.decode import verifiers
from localspec.decode.verifiers import VERIFIERS, Match


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "seeds"), [("tables", 60), ("chances", 4), ("models", 15)])
def test_the_first_seeds_find_nothing(
    name: str, seeds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of `tables` are tried by test_search_exactness.py."""
    monkeypatch.setattr(chances, "_DRAWS", FEW_DRAWS)
    found: list[str] = []
    runner = Runner({name: SEARCHES[name](tmp_path)}, found.append)
    for seed in range(20 if name == "tables" else 0, seeds):
        runner.one(name, seed)
    assert found == []


@pytest.mark.slow
def test_a_wrong_residual_is_found_by_as_few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiers, "residual", lambda p, _: p)
    monkeypatch.setattr(chances, "_AGAIN", 1)
    monkeypatch.setattr(chances, "_DRAWS", FEW_DRAWS)
    search = SEARCHES["chances"](Path())
    assert search.wrong(search.case(2)) is not None


FEW_DRAWS = 600
"""Of `chances`, in a test."""


@dataclass(frozen=True)
class Number:
    """A case that is wrong from 10 on."""

    value: int


class Numbers(Search):
    def case(self, seed: int) -> Number:
        return Number(7 * seed)

    def wrong(self, case: Number) -> str | None:
        return "too large" if case.value >= 10 else None

    def smaller(self, case: Number) -> Iterator[Number]:
        yield Number(case.value // 2)
        yield Number(case.value - 1)


def test_what_is_found_is_told_with_its_seed_and_as_small_as_it_can_be() -> None:
    told: list[str] = []
    runner = Runner({"numbers": Numbers()}, told.append)
    runner.one("numbers", 1)
    runner.one("numbers", 9)
    assert told == ["numbers --seed 9: too large\n  Number(value=10)"]
    assert [*runner.summary()] == ["numbers: 2 cases, 1 faults"]


def test_a_run_goes_on_behind_the_last_one(tmp_path: Path) -> None:
    first = Seeds(tmp_path / "seeds.json")
    assert [first.take("a"), first.take("a"), first.take("b")] == [0, 1, 0]
    first.keep()
    assert Seeds(tmp_path / "seeds.json").take("a") == 2


class Lax(Match):
    """Takes the first drafted token whatever the target says: wrong under every verifier."""

    def __call__(
        self, draft: Draft, rows: TargetRows, noise: Noise, position: int, ends: Sequence[int] = ()
    ) -> Verdict:
        found = super().__call__(draft, rows, noise, position, ends)
        return found if found.path or not len(draft) else replace(found, token=int(draft.tokens[0]))


def test_a_verifier_that_lets_the_draft_win_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_tables, "Match", Lax)
    search = SEARCHES["tables"](Path())
    assert any(search.wrong(search.case(seed)) for seed in range(20))


def test_draws_from_a_wrong_distribution_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chances, "Rejection", Lax)
    monkeypatch.setattr(chances, "_DRAWS", 150)
    search = SEARCHES["chances"](Path())
    assert any(search.wrong(search.case(seed)) for seed in range(3))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_lax_verifier_is_found_on_real_models(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(VERIFIERS, "match", Lax())
    search = SEARCHES["models"](tmp_path)
    assert any(search.wrong(search.case(seed)) for seed in range(12))
