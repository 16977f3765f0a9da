"""Which drafters a pair gets, by options and headers alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf_tools
import head_files
import pytest

from localspec.core.options import Options
from localspec.loading.selection import Branches, Selection, read_headers, select
from localspec.models.gguf.model_file import ModelFile

Choose = Callable[..., Selection]
FILES = ("none", "model", "mtp", "eagle3", "medusa", "dflash")


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path | None]]:
    """(target, draft file) by what the pair is drafted for with."""
    folder = tmp_path_factory.mktemp("pairs")
    plain = gguf_tools.write_llama(folder / "plain.gguf", layers=4, seed=3, context=1024)
    draft = gguf_tools.write_llama(folder / "draft.gguf", layers=1, seed=3)
    return {
        "none": (plain, None),
        "model": (plain, draft),
        "mtp": (head_files.write_mtp(folder / "carrying.gguf"), None),
        "eagle3": (plain, head_files.write_eagle(folder / "eagle.gguf")),
        "medusa": (plain, head_files.write_medusa(folder / "heads.gguf")),
        "dflash": (plain, head_files.write_dflash(folder / "blocks.gguf")),
    }


@pytest.fixture
def choose(targets: dict[str, tuple[Path, Path | None]]) -> Choose:
    def chosen(which: str, **options: object) -> Selection:
        target, draft = targets[which]
        headers = read_headers(ModelFile(target), ModelFile(draft) if draft else None)
        return select(Options(**options), headers)  # type: ignore[arg-type]

    return chosen


@pytest.mark.parametrize(("which", "best"), [*zip(FILES, ("model", *FILES[1:]), strict=True)])
def test_text_is_drafted_from_first_then_what_the_files_bring(
    choose: Choose, which: str, best: str
) -> None:
    assert choose(which).names == ("suffix", best)


@pytest.mark.parametrize("which", FILES)
def test_a_length_of_0_switches_drafting_off(choose: Choose, which: str) -> None:
    selection = choose(which, draft_max=0, drafter=("model",))
    assert selection.off
    assert not selection.uses_draft_file


@pytest.mark.parametrize(
    ("which", "best"),
    [("none", "tree"), ("model", "tree"), ("mtp", "mtp"), ("eagle3", "eagle3"), ("dflash", "tree")],
)
def test_a_tree_is_of_the_best_drafter_that_can_draft_trees(
    choose: Choose, which: str, best: str
) -> None:
    assert choose(which, drafter=("tree",)).names == (best,)
    assert choose(which, drafter=("tree", best)).names == (best,)


def test_no_draft_leaves_the_targets_own_layer_out(choose: Choose) -> None:
    assert choose("mtp").in_target
    assert choose("mtp", draft="none").names == ("suffix", "model")


@pytest.mark.parametrize("which", FILES[1:])
def test_the_draft_file_is_planned_for_where_a_drafter_needs_it(choose: Choose, which: str) -> None:
    assert choose(which).uses_draft_file is (which != "mtp")
    assert not choose(which, drafter=("suffix", "ngram", "lookahead")).uses_draft_file


@pytest.mark.parametrize(
    ("which", "options", "must"),
    [
        ("model", {}, False),
        ("model", {"draft": "a.gguf"}, True),
        ("model", {"require_draft": True}, True),
        ("eagle3", {"draft": "a.gguf"}, False),
        ("eagle3", {"drafter": ("eagle3",)}, True),
        ("eagle3", {"require_draft": True}, True),
    ],
)
def test_memory_for_a_draft_is_required_only_of_what_was_insisted_on(
    choose: Choose, which: str, options: dict[str, object], *, must: bool
) -> None:
    assert choose(which, **options).must_fit is must


@pytest.mark.parametrize(
    ("which", "drafter", "count"),
    [
        ("model", None, 0),
        ("model", ("tree",), 8),
        ("none", ("lookahead",), 15),
        ("mtp", None, 8),
        ("eagle3", None, 8),
        ("medusa", None, 8),
        ("dflash", None, 0),
    ],
)
def test_room_for_trees_is_made_where_something_drafts_them(
    choose: Choose, which: str, drafter: tuple[str, ...] | None, count: int
) -> None:
    selection = choose(which, drafter=drafter)
    assert selection.branches("t.gguf", can_branch=True, sequences=1) == Branches(count)
    assert selection.branches("t.gguf", can_branch=False, sequences=1).count == 0


@pytest.mark.parametrize(
    ("which", "drafter", "told"),
    [
        ("model", ("tree",), True),
        ("medusa", None, True),
        ("mtp", None, False),
        ("mtp", ("tree",), True),
        ("eagle3", None, False),
    ],
)
def test_a_cache_that_cannot_branch_is_told_where_trees_were_expected(
    choose: Choose, which: str, drafter: tuple[str, ...] | None, *, told: bool
) -> None:
    notices = (
        choose(which, drafter=drafter).branches("t.gguf", can_branch=False, sequences=1).notices
    )
    expected = "t.gguf keeps a cache that cannot branch: drafting chains, not trees"
    assert notices == ((expected,) if told else ())


def test_lookahead_has_no_chains_instead_of_trees(choose: Choose) -> None:
    room = choose("none", drafter=("lookahead",)).branches("t.gguf", can_branch=False, sequences=1)
    assert room == Branches(0, ("t.gguf keeps a cache that cannot branch: no draft trees",))


def test_a_head_of_several_layers_drafts_chains_and_says_so_to_who_asked_for_a_tree(
    tmp_path: Path,
) -> None:
    headers = read_headers(ModelFile(head_files.write_chained(tmp_path / "chained.gguf")), None)
    told = "this kind of mtp head drafts chains, not trees"
    for drafter, notices in ((("tree",), (told,)), (None, ())):
        selection = select(Options(drafter=drafter), headers)
        assert "mtp" in selection.names
        assert selection.branches("t.gguf", can_branch=True, sequences=1) == Branches(0, notices)


@pytest.mark.parametrize(
    ("which", "options", "growing"),
    [
        ("mtp", {}, {"mtp"}),
        ("mtp", {"draft_max": 3}, set()),
        ("mtp", {"draft_max": 3, "drafter": ("tree",)}, {"mtp"}),
        ("medusa", {"draft_max": 3}, {"medusa"}),
        ("model", {"draft_max": 3, "drafter": ("tree",)}, {"tree"}),
        ("none", {"drafter": ("lookahead",)}, {"lookahead"}),
    ],
)
def test_heads_draft_trees_of_a_given_length_only_where_a_tree_was_asked_for(
    choose: Choose, which: str, options: dict[str, object], growing: set[str]
) -> None:
    selection = choose(which, **options)
    assert set(selection.branching(selection.names, branches=8)) == growing
    assert selection.branching(selection.names, branches=0) == {}


def test_a_draft_file_of_another_kind_is_refused_by_its_name(choose: Choose) -> None:
    headers = choose("eagle3").headers
    assert headers.problem("model") == "eagle.gguf is an EAGLE-3 head, not a model of its own"
    assert headers.problem("medusa") == "eagle.gguf is an EAGLE-3 head, not a file of Medusa heads"
    assert headers.problem("eagle3") is None
    missing = choose("none").headers.problem("eagle3")
    assert missing == "there is no eagle3 head for plain.gguf; name its file with --draft"
