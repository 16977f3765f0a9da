"""From a wish to files: names, quantizations, shards."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.errors import ModelFileError, ModelNotFoundError, UsageError
from localspec.models.catalog.file_names import (
    PREFERENCE,
    RepoFile,
    RepoModel,
    candidates,
    choose,
    projector,
)
from localspec.models.catalog.links import HubRef, parse_hub_ref

LABELS = [
    *("Q2_K", "Q3_K_M", "Q4_0", "Q4_1", "Q4_K_S", "Q4_K_M", "Q4_K_L", "Q5_K_M", "Q6_K", "Q8_0"),
    *("IQ4_XS", "IQ4_NL", "IQ3_XXS", "TQ1_0", "MXFP4", "NVFP4", "BF16", "F16", "F32"),
    *("UD-Q4_K_M", "UD-Q4_K_XL", "UD-IQ2_M", "UD-Q8_K_XL"),
]
WANTED = HubRef("org/some-GGUF")


def listed(*paths: str, size: int = 4_000_000_000) -> list[RepoFile]:
    return [RepoFile(path, size) for path in paths]


def pick(paths: list[str], tag: str | None, *, small: bool = False, size: int = 10**9) -> list[str]:
    wanted = HubRef("org/some-GGUF", tag)
    entries = listed(*paths, size=size)
    found = choose(wanted, candidates(entries, wanted), small=small)
    return [entry.path for entry in found.entries]


@pytest.mark.parametrize(
    ("text", "repo", "tag"),
    [
        ("user/repo", "user/repo", None),
        ("user/repo:Q4_K_M", "user/repo", "Q4_K_M"),
        ("user/repo:latest", "user/repo", None),
        ("hf.co/user/repo:q8_0", "user/repo", "q8_0"),
        ("huggingface.co/user/repo", "user/repo", None),
        ("hf://user/repo/sub/file.gguf", "user/repo", "sub/file.gguf"),
        ("https://huggingface.co/user/repo/", "user/repo", None),
        ("https://hf.co/user/repo/resolve/main/a%20b.gguf", "user/repo", "a b.gguf"),
        ("https://huggingface.co/u/r/blob/main/x/y.gguf", "u/r", "x/y.gguf"),
        ("user/repo:Qwen3 8B-Q4_K_M.gguf", "user/repo", "Qwen3 8B-Q4_K_M.gguf"),
    ],
)
def test_every_way_to_name_a_repository(text: str, repo: str, tag: str | None) -> None:
    assert parse_hub_ref(text) == HubRef(repo, tag)


@pytest.mark.parametrize(
    "text", ["", "name", "/abs/path", "./a/b", "../a/b", "a/b:c:d", "user/..", "a/b/../c", "~/x/y"]
)
def test_what_cannot_be_a_repository(text: str) -> None:
    assert parse_hub_ref(text) is None


@given(
    st.sets(st.sampled_from(LABELS), min_size=1),
    st.sampled_from(LABELS),
    st.sampled_from(["model-{}.gguf", "Model.{}.gguf", "a/{}/model-{}.gguf", "Q4-model_{}.gguf"]),
)
def test_a_quantization_is_matched_whole_or_not_at_all(
    there: set[str], asked: str, style: str
) -> None:
    paths = {label: style.replace("{}", label) for label in there}
    for wish in (asked, asked.lower()):
        if asked in there:
            assert pick(list(paths.values()), wish) == [paths[asked]]
        else:
            with pytest.raises(ModelNotFoundError) as error:
                pick(list(paths.values()), wish)
            assert all(f"{label} (" in str(error.value) for label in there)


@given(st.sets(st.sampled_from(LABELS), min_size=1), st.randoms())
def test_the_order_of_a_listing_changes_nothing(there: set[str], random) -> None:
    paths = [f"model-{label}.gguf" for label in there]
    random.shuffle(paths)
    known = [label for label in PREFERENCE if label in there]
    if known:
        assert pick(paths, None) == [f"model-{known[0]}.gguf"]
    elif len(paths) > 1:
        with pytest.raises(UsageError, match="name one"):
            pick(paths, None)


@given(st.integers(2, 12), st.randoms())
def test_shards_are_put_in_order_whatever_the_listing(count: int, random) -> None:
    paths = [f"d/m-Q6_K-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]
    shuffled = [*paths, "m-Q4_K_M.gguf"]
    random.shuffle(shuffled)
    assert pick(shuffled, "Q6_K") == paths
    gone = random.choice(paths)
    with pytest.raises(ModelFileError, match=f"{count - 1} of the {count} parts"):
        pick([p for p in shuffled if p != gone], "Q6_K")


def test_what_is_no_model_is_left_out_unless_named() -> None:
    paths = [
        *("mmproj-model-f16.gguf", "x-mmproj-BF16.gguf", "imatrix.gguf", "mtp-x-Q8_0.gguf"),
        *("eagle3-x-Q8_0.gguf", "dflash-x-Q8_0.gguf", "x-MTP-Q8_0.gguf", "README.md", "x.bin"),
    ]
    assert pick(paths, "Q8_0") == ["x-MTP-Q8_0.gguf"]
    assert pick(paths, None) == ["x-MTP-Q8_0.gguf"]
    assert pick(paths, "mtp-x-Q8_0.gguf") == ["mtp-x-Q8_0.gguf"]
    with pytest.raises(ModelNotFoundError, match="holds no GGUF"):
        pick(["README.md", "mmproj-f16.gguf"], None)


def test_one_file_is_preferred_to_the_same_in_shards() -> None:
    shards = [f"q-7b-q4_k_m-0000{i}-of-00002.gguf" for i in (1, 2)]
    assert pick([*shards, "q-7b-q4_k_m.gguf"], "Q4_K_M") == ["q-7b-q4_k_m.gguf"]
    assert pick([*shards, "q-7b-q4_k_m.gguf"], shards[0]) == shards


def test_two_models_in_one_repository_are_not_guessed_between() -> None:
    paths = ["a-7b-Q4_K_M.gguf", "b-13b-Q4_K_M.gguf"]
    for tag in (None, "Q4_K_M"):
        with pytest.raises(UsageError, match=r"a-7b-Q4_K_M.gguf.*b-13b-Q4_K_M.gguf"):
            pick(paths, tag)
    assert pick(paths, "b-13b-Q4_K_M") == ["b-13b-Q4_K_M.gguf"]
    assert pick(paths, "7b-q4_k_m") == ["a-7b-Q4_K_M.gguf"]


def test_a_draft_is_taken_in_eight_bits_if_that_is_small() -> None:
    paths = ["m-Q4_K_M.gguf", "m-Q8_0.gguf"]
    assert pick(paths, None, small=True, size=6 * 10**8) == ["m-Q8_0.gguf"]
    assert pick(paths, None, small=True, size=8 * 10**9) == ["m-Q4_K_M.gguf"]


@given(st.text("QK_48MUD-.X", min_size=1, max_size=8))
def test_any_wish_ends_in_a_file_or_in_a_list(tag: str) -> None:
    paths = [f"model-{label}.gguf" for label in LABELS]
    try:
        (found,) = pick(paths, tag)
    except (ModelNotFoundError, UsageError) as error:
        assert "org/some-GGUF" in str(error)  # noqa: PT017
    else:
        assert f"-{tag}.gguf".lower() in f"-{found}".lower().replace("model-", "")


def test_sizes_are_those_of_all_shards() -> None:
    parts = tuple(RepoFile(f"m-0000{i}-of-00003.gguf", i * 100) for i in (1, 2, 3))
    assert RepoModel("m", parts, 3).n_bytes == 600
    assert [c.label for c in candidates(listed("Q5_K_M/m-00001-of-00001.gguf"), WANTED)] == [
        "Q5_K_M"
    ]
    assert len(set(itertools.chain(PREFERENCE))) == len(PREFERENCE)


def test_the_projector_of_a_model_is_in_its_folder_and_has_16_bits_where_it_can() -> None:
    names = ("m-Q4_K_M.gguf", "mmproj-F32.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf", "README.md")
    entries = [RepoFile(name, 10) for name in (*names, "sub/model-mmproj-q8_0.gguf")]
    assert projector(entries, "m-Q4_K_M.gguf") == RepoFile("mmproj-F16.gguf", 10)
    assert projector(entries, "sub/m.gguf") == RepoFile("sub/model-mmproj-q8_0.gguf", 10)
    assert projector(entries, "other/m.gguf") is None


@pytest.mark.parametrize(("tag", "kind"), [("Q4_0", ModelNotFoundError), (None, UsageError)])
def test_a_repository_of_many_models_is_not_listed_whole(
    tag: str | None, kind: type[Exception]
) -> None:
    paths = [f"models/{'long-name-' * 6}{n}.gguf" for n in range(700)]
    with pytest.raises(kind, match="and 660 more") as caught:
        pick(paths, tag)
    assert len(str(caught.value)) < 10_000
