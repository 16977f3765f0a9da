"""Names and links of models on the Hub, as they are typed or copied from a browser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.models.catalog.links import HubRef, parse_hub_ref

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILE = "x/y-Q4_0.gguf"
SITE = "https://huggingface.co/u/r"


@pytest.mark.parametrize(
    ("text", "tag", "revision"),
    [
        (SITE, None, None),
        ("HTTPS://HuggingFace.co/u/r", None, None),
        (f"{SITE}?library=transformers", None, None),
        (f"{SITE}#how-to-use", None, None),
        (f"{SITE}/tree/main", None, None),
        (f"{SITE}/tree/v2", None, "v2"),
        (f"{SITE}/tree/main/UD-Q4_K_XL", "UD-Q4_K_XL/", None),
        (f"{SITE}/tree/main?show_file_info={FILE.replace('/', '%2F')}", FILE, None),
        (f"{SITE}/blob/main/{FILE}", FILE, None),
        (f"{SITE}/raw/main/{FILE}", FILE, None),
        (f"{SITE}/blob/{COMMIT}/{FILE}", FILE, COMMIT),
        (f"{SITE}/resolve/v2/{FILE}?download=true", FILE, "v2"),
        (f"{SITE}/resolve/refs%2Fpr%2F1/{FILE}", FILE, "refs/pr/1"),
        (f"{SITE}/resolve/refs/pr/1/{FILE}#L3", FILE, "refs/pr/1"),
        (f"{SITE}/resolve/feature%2Fnew/{FILE}", FILE, "feature/new"),
        (f"{SITE}/commit/{COMMIT}", None, COMMIT),
        (f"{SITE}/discussions/7", None, "refs/pr/7"),
        (f"{SITE}/discussions/7/files", None, "refs/pr/7"),
        (f"{SITE}/resolve/main/a%20b.gguf?download=true", "a b.gguf", None),
        ("hf.co/u/r:Q8_0", "Q8_0", None),
        ("HF.co/u/r@v2:Q8_0", "Q8_0", "v2"),
        ("hf://u/r", None, None),
        ("hf://models/u/r", None, None),
        (f"hf://models/u/r@v2/{FILE}", FILE, "v2"),
        (f"hf://u/r@refs/pr/1/{FILE}", FILE, "refs/pr/1"),
        (f"hf://u/r@refs%2Fpr%2F1/{FILE}", FILE, "refs/pr/1"),
        ("u/r@v2", None, "v2"),
        ("u/r@refs/pr/3", None, "refs/pr/3"),
        ("u/r@refs/pr/3:Q4_K_M", "Q4_K_M", "refs/pr/3"),
        ("u/r@feature/new:Q4_K_M", "Q4_K_M", "feature/new"),
        ("u/r@main:Q4_K_M", "Q4_K_M", None),
        (f"u/r@{COMMIT}/{FILE}", FILE, COMMIT),
        ("u/r:a #2 b.gguf", "a #2 b.gguf", None),
    ],
)
def test_every_form_of_a_link_names_its_revision_and_file(
    text: str, tag: str | None, revision: str | None
) -> None:
    assert parse_hub_ref(text) == HubRef("u/r", tag, revision)


@pytest.mark.parametrize(
    "text",
    [
        "https://huggingface.co/datasets/u/r",
        "https://huggingface.co/spaces/u/r",
        "https://huggingface.co/u",
        "https://example.com/u/r",
        "ftp://huggingface.co/u/r",
        "hf://datasets/u/r/x/y/z@",
        "u/r@..",
        "u/r@../../x",
        "u/r@a b",
        "u/r@",
        "https://[huggingface.co/u/r",
        f"{SITE}/blob/main/../../etc/passwd",
    ],
)
def test_what_names_no_model_is_no_link(text: str) -> None:
    assert parse_hub_ref(text) is None


def test_links_of_the_mirror_that_is_set_are_links(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_hub_ref("https://hub.example/u/r/blob/v2/m.gguf") is None
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    assert parse_hub_ref("https://hub.example/u/r/blob/v2/m.gguf") == HubRef("u/r", "m.gguf", "v2")


@given(st.text())
def test_any_text_is_a_name_or_none(text: str) -> None:
    for found in (
        parse_hub_ref(text),
        parse_hub_ref(f"{SITE}/{text}"),
        parse_hub_ref(f"hf://{text}"),
    ):
        if found is not None:
            assert ".." not in found.repo
            assert ".." not in (found.tag or "").split("/")
            assert ".." not in (found.revision or "")


@given(
    st.sampled_from(["u/r", "Some-User/Model.v1_x"]),
    st.sampled_from([None, "Q4_K_M", "a/b-Q4_0.gguf"]),
    st.sampled_from([None, "v2", "refs/pr/12", COMMIT]),
)
def test_a_name_in_a_message_means_the_same_when_it_is_typed(
    repo: str, tag: str | None, revision: str | None
) -> None:
    wanted = HubRef(repo, tag, revision)
    assert parse_hub_ref(str(wanted)) == wanted
