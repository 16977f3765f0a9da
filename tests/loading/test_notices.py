"""Notices reach the user, whatever happens while a pair is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gguf_tools
import head_files
import pytest
from conftest import Files

from localspec import Options, Runtime
from localspec.core.errors import DraftIncompatibleError, ModelFileError, OutOfMemoryError
from localspec.core.files import paths
from localspec.core.options import Options as LoadOptions
from localspec.core.values import Proposal
from localspec.llama.context import Context
from localspec.llama.limits import graph_splits
from localspec.loading import loader, planning
from localspec.loading.drafting import Drafters, Drafting, EarlierTexts
from localspec.loading.resources import Parts
from localspec.loading.selection import read_headers, select
from localspec.models.compat.heads import worker_problem
from localspec.models.gguf.model_file import ModelFile
from localspec.models.memory.planner import Fit, Wishes


@pytest.fixture
def memory_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, refusals = Parts.context, [OutOfMemoryError("no room for the context; try less")]

    def context(parts: Parts, *args: Any, **settings: Any) -> Context:
        if refusals:
            raise refusals.pop()
        return made(parts, *args, **settings)

    monkeypatch.setattr(Parts, "context", context)


@pytest.mark.usefixtures("memory_is_refused_once")
def test_a_retry_with_less_memory_keeps_what_there_was_to_say_before(tmp_path: Path) -> None:
    target = gguf_tools.write_llama(tmp_path / "plain.gguf", layers=4, seed=3, context=8192)
    head_files.write_eagle(tmp_path / "one.gguf")
    head_files.write_eagle(tmp_path / "two.gguf")
    with Runtime.open(Options(str(target), threads=1, draft_max=2)) as runtime:
        notices = runtime.info.notices
    assert sum("of the heads" in notice for notice in notices) == 1
    assert sum("memory was refused (no room for the context)" in n for n in notices) == 1
    assert len(set(notices)) == len(notices)


def test_the_notices_of_the_caller_come_with_those_of_loading(files: Files) -> None:
    options = LoadOptions(str(files.target), draft="none", drafter=("suffix",), draft_max=2)
    earlier = EarlierTexts(notices=("the chats cannot be read",))
    pair = loader.load(options, None, None, earlier=earlier)
    pair.close()
    assert "the chats cannot be read" in pair.info.notices


def test_a_home_that_others_may_write_to_is_told_with_the_remedy(files: Files) -> None:
    home = paths.cache_dir().parent.parent
    before = home.stat().st_mode
    home.chmod(0o777)
    try:
        pair = loader.load(LoadOptions(str(files.target), draft="none"), None, None)
    finally:
        home.chmod(before)
    pair.close()
    told = [n for n in pair.info.notices if n.startswith("kernels and states kept in ")]
    assert len(told) == 1
    assert told[0].endswith(f"chmod go-w '{home}'")


# -- a device that lacks an operation --------------------------------------------------------------


@pytest.fixture
def quantized(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner chooses a q8_0 KV cache where the user leaves the type open."""
    planned = planning.fit_files

    def fit_files(
        target: ModelFile, draft: ModelFile | None, wishes: Wishes, *, remote: None, beside: int
    ) -> Fit:
        assert remote is None
        if wishes.kv_type is not None:
            return planned(target, draft, wishes, beside=beside)
        fit = planned(target, draft, replace(wishes, kv_type="q8_0"), beside=beside)
        return replace(fit, wishes=wishes)

    monkeypatch.setattr(planning, "fit_files", fit_files)


@pytest.mark.usefixtures("quantized")
def test_a_quantized_cache_that_the_device_does_not_compute_with_is_replaced_openly(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "leaves_device", property(lambda c: c.kv_type == "q8_0"))
    pair = loader.load(LoadOptions(str(files.target), draft_max=2), None, None)
    pair.close()
    assert pair.parts.fit.target.kv_type == "f16"
    assert any("q8_0 KV cache; the cache is f16 instead" in n for n in pair.info.notices)


def test_a_cache_type_that_the_user_chose_stays_with_a_notice(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "leaves_device", property(lambda c: True))
    pair = loader.load(LoadOptions(str(files.target), draft_max=2, kv_type="q8_0"), None, None)
    pair.close()
    assert pair.parts.fit.target.kv_type == "q8_0"
    assert any("the device lacks an operation" in notice for notice in pair.info.notices)


def test_an_operation_that_only_the_draft_model_needs_is_named_with_its_file(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "leaves_device", property(lambda c: c.model.path == files.draft))
    pair = loader.load(LoadOptions(str(files.target), str(files.draft), draft_max=2), None, None)
    pair.close()
    told = [notice for notice in pair.info.notices if "the device lacks an operation" in notice]
    assert [files.draft.name in notice for notice in told] == [True]


@pytest.mark.parametrize(
    ("line", "splits"),
    [
        ("sched_reserve: graph: nodes = 300, splits = 2, input objects = 1, input tensors = 9", 2),
        ("sched_reserve: graph (pp bs=512, tg bs=1): nodes = 30, splits = 46 / 3, input o = 1", 3),
        ("sched_reserve: reserve took 5 ms, sched copies = 1", 0),
    ],
)
def test_the_parts_of_a_graph_are_read_from_the_log(line: str, splits: int) -> None:
    assert graph_splits(["llama_context: n_ctx = 512", line]) == splits


# -- drafters, with nothing loaded -----------------------------------------------------------------

Open = Callable[..., Drafting]
TEXTS = ("newest newest", "older")


class NoParts:
    """Loads nothing: every draft file is damaged."""

    def __init__(self, left_out: str | None) -> None:
        self.fit = SimpleNamespace(left_out=left_out, draft=None, context=512)

    def model(self, path: Path, *_: object, **__: object) -> None:
        raise ModelFileError(f"{path.name} is damaged")


@pytest.fixture
def open_drafters(files: Files, tmp_path: Path) -> Open:
    eagle = head_files.write_eagle(tmp_path / "eagle.gguf", layers=(0, 1, 1))

    def opened(
        brings: str | None,
        *,
        branching: bool = True,
        left_out: str | None = None,
        on_workers: bool = False,
        **given: Any,
    ) -> Drafting:
        path = {"model": files.draft, "eagle3": eagle}.get(brings or "")
        target, file = ModelFile(files.target), ModelFile(path) if path else None
        remote = object() if on_workers else None
        model = SimpleNamespace(tokenize=lambda text, **_: [*text.encode()], remote=remote)
        context = SimpleNamespace(model=model, branches=15 if branching else 0)
        return Drafters(
            selection=select(LoadOptions(**given), read_headers(target, file)),
            target_file=target,
            draft_file=file,
            target=cast("Context", context),
            parts=cast("Parts", NoParts(left_out)),
            favoured=Proposal.COUPLED,
            earlier=TEXTS,
        ).open()

    return opened


def names(drafting: Drafting) -> list[str]:
    return [drafter.name for drafter in drafting.drafters]


@pytest.mark.parametrize("drafter", [None, ("model",)])
def test_text_is_drafted_from_where_the_draft_model_is_damaged(
    open_drafters: Open, drafter: tuple[str, ...] | None
) -> None:
    drafting = open_drafters("model", drafter=drafter)
    assert names(drafting) == ["suffix"]
    assert drafting.notices == ("draft.gguf is damaged; drafting from the text instead",)
    assert drafting.file is None


def test_text_replaces_several_drafters_once(open_drafters: Open) -> None:
    assert names(open_drafters("model", drafter=("model", "tree"))) == ["suffix"]


def test_a_damaged_draft_model_that_was_named_is_an_error(open_drafters: Open) -> None:
    with pytest.raises(ModelFileError, match=r"draft\.gguf is damaged"):
        open_drafters("model", draft="draft.gguf")


def test_a_drafter_that_was_named_says_that_it_is_not_there_and_is_not_replaced(
    open_drafters: Open,
) -> None:
    assert open_drafters(None, drafter=("model",)) == Drafting(
        notices=("model drafts nothing: target.gguf has no draft model; name one with -d",)
    )
    assert open_drafters(None, drafter=("lookahead",), branching=False) == Drafting(
        notices=("lookahead drafts nothing: it needs draft trees",)
    )
    assert names(open_drafters(None)) == ["suffix"]
    assert not open_drafters(None).notices
    with pytest.raises(DraftIncompatibleError, match="there is no draft model"):
        open_drafters(None, require_draft=True)


def test_text_is_drafted_from_where_there_is_no_memory_for_a_head(open_drafters: Open) -> None:
    left_out = "the head does not fit"
    drafting = open_drafters("eagle3", left_out=left_out)
    assert names(drafting) == ["suffix"]
    assert drafting.notices == (f"{left_out}; drafting from the text instead",)


def test_a_head_that_uses_a_matrix_of_a_target_on_workers_is_not_opened(
    open_drafters: Open,
) -> None:
    """llama.cpp would abort the process."""
    drafting = open_drafters("eagle3", on_workers=True)
    assert names(drafting) == ["suffix"]
    (notice,) = drafting.notices
    assert "eagle.gguf uses the output matrix of its target, which workers have" in notice
    with pytest.raises(DraftIncompatibleError, match="workers have"):
        open_drafters("eagle3", on_workers=True, drafter=("eagle3",), require_draft=True)


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (head_files.write_eagle, "output matrix"),
        (lambda path: head_files.write_eagle(path, own=True), None),
        (head_files.write_dflash, "output matrix"),
        (lambda path: head_files.write_dflash(path, own=True), None),
        (head_files.write_assistant, "KV cache"),
    ],
    ids=["eagle3", "eagle3 with its own", "dflash", "dflash with its own", "assistant"],
)
def test_heads_with_matrices_of_their_own_may_draft_for_workers(
    write: Callable[[Path], Path], problem: str | None, tmp_path: Path
) -> None:
    found = worker_problem(ModelFile(write(tmp_path / "head.gguf")).header)
    assert found is None if problem is None else problem in (found or "")


def test_lookahead_needs_a_cache_that_can_branch(open_drafters: Open) -> None:
    assert names(open_drafters(None, drafter=("lookahead",))) == ["lookahead"]
    assert names(open_drafters(None, drafter=("lookahead",), branching=False)) == []


def test_earlier_texts_are_drafted_from_the_oldest_first(
    open_drafters: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.drafters.lookup import suffix

    seen = []
    opener = suffix.open_drafter
    monkeypatch.setattr(suffix, "open_drafter", lambda texts: seen.append(texts) or opener(texts))
    open_drafters(None, drafter=("suffix",))
    (texts,) = seen
    assert texts.earlier == (tuple(b"older"), tuple(b"newest newest"))
    assert texts.min_match == 1
