"""Paths as users type them."""

from __future__ import annotations

from pathlib import Path

import pytest
from without_home import without_a_home

from localspec import cli
from localspec.compiling.llama_source import left_by_builds
from localspec.core.files import defects, paths
from localspec.models.catalog import hf_cache

ROOT = Path(__file__).parents[2]
UNKNOWN = "~nosuchuser/x"


@pytest.mark.parametrize("name", [UNKNOWN, "~\0/x"])
def test_the_home_of_a_user_that_there_is_not_is_left_as_it_is(name: str) -> None:
    assert paths.expand(name) == Path(name)


def test_one_function_alone_expands_a_tilde() -> None:
    """`Path.expanduser` raises RuntimeError for an unknown user, which nobody thinks of."""
    found = [
        path.relative_to(ROOT).as_posix()
        for package in ("localspec", "tui")
        for path in (ROOT / package).rglob("*.py")
        if "expanduser(" in path.read_text(encoding="utf-8")
    ]
    assert found == ["localspec/core/files/paths.py"]


def test_what_is_a_number_is_asked_by_a_question_that_int_agrees_with() -> None:
    """``"²".isdigit()`` is true, and ``int("²")`` raises ValueError."""
    for package in ("localspec", "tui"):
        for path in (ROOT / package).rglob("*.py"):
            assert ".isdigit(" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("asked", [["models"], ["chats"], ["show", "demo"], ["rm", "a/b"]])
def test_without_a_home_a_sentence_says_what_to_set(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_a_home(monkeypatch)
    assert cli.call(asked) == 2
    said = capsys.readouterr().err
    assert said == "localspec: there is no home folder; set HOME or LOCALSPEC_HOME\n"
    assert defects.report(KeyError("x")).endswith("; please report it")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (["run", "hi", "--image", UNKNOWN], 2),
        (["run", "hi", "--schema", UNKNOWN], 2),
        (["run", "hi", "--grammar", UNKNOWN], 2),
        (["run", "hi", "--lora", UNKNOWN], 3),
        (["run", "hi", "--control-vector", UNKNOWN], 3),
        (["bench", "--against", f"llama-server={UNKNOWN}"], 2),
    ],
)
def test_a_file_below_a_home_that_there_is_not_is_missing_and_no_bug(
    asked: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(asked) == code
    said = capsys.readouterr().err
    assert UNKNOWN in said
    assert "bug" not in said


def test_variables_that_name_such_a_home_are_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", UNKNOWN)
    monkeypatch.setenv("XDG_CACHE_HOME", UNKNOWN)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.delenv("HUGGINGFACE_HUB_CACHE", raising=False)
    assert hf_cache.repos() == []
    assert list(left_by_builds()) is not None
