"""The memory of earlier requests against the slow way, within its bounds, each owner apart."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.logits import GREEDY, LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import Budget
from localspec.drafters.base import Ask
from localspec.drafters.cascade import Cascade
from localspec.drafters.lookup import request_memory
from localspec.drafters.lookup.request_memory import SIZES, Passage, RequestMemory
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.lookup.suffix_index import LONGEST

ROOM = 4_000_000
SHORTEST = min(SIZES)
LARGE = 1 << 18
"""More tokens than most vocabularies have."""


@pytest.fixture(autouse=True, scope="module")
def _same_hashes() -> Iterator[None]:
    """Owners have random secrets, and an entry is lost where hashes meet: for one of a thousand
    passages here. The same secrets each time make that the same passages.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_memory.secrets, "randbits", random.Random(0).getrandbits)
        yield


def novel(n: int, seed: int = 0) -> list[int]:
    """Tokens that no other text of these tests has."""
    return [LARGE * (1 + seed) + i for i in range(n)]


def ask(tokens: list[int], k: int = 8, recalls: str | None = "") -> Ask:
    processor = LogitsProcessor(GREEDY, 300)
    return Ask(0, tokens, Budget.chain(k), Noise(0), processor, recalls=recalls)


def agreement(known: list[int], end: int, text: list[int]) -> int:
    n = 0
    while n < min(end, len(text), LONGEST) and known[end - 1 - n] == text[-1 - n]:
        n += 1
    return n


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Texts made of few passages, and another one that may be made of the same."""
    passages = [draw(st.lists(st.integers(0, 9), min_size=1, max_size=40)) for _ in range(3)]
    some = st.lists(st.sampled_from(passages), min_size=1, max_size=5)
    made = some.map(lambda parts: [token for part in parts for token in part])
    return draw(st.lists(made, max_size=5)), draw(made)


@given(conversations(), st.integers(1, 20))
def test_what_is_recalled_was_written_and_as_long_as_is_said(
    case: tuple[list[list[int]], list[int]], most: int
) -> None:
    texts, text = case
    memory = RequestMemory(ROOM)
    for known in texts:
        memory.learn("", known)
    found = memory.recall("", text, most)
    ends = [
        (agreement(known, end, text), known[end:])
        for known in texts
        for end in range(SHORTEST, len(known))
    ]
    if found is None:
        return
    assert found.length >= SHORTEST
    assert 1 <= len(found.following) <= most
    begins = [
        after[: len(found.following)] == found.following
        for length, after in ends
        if length >= found.length
    ]
    assert any(begins)


@given(st.lists(st.integers(0, 1 << 30), min_size=40, max_size=200, unique=True), st.data())
def test_every_place_of_a_text_without_repetition_is_found(
    known: list[int], data: st.DataObject
) -> None:
    memory = RequestMemory(ROOM)
    memory.learn("", known)
    end = data.draw(st.integers(SHORTEST, len(known) - 1))
    length = data.draw(st.integers(SHORTEST, min(end, LONGEST)))
    found = memory.recall("", [5, *known[end - length : end]], 5)
    # None where its entry was lost to another: the next test counts how often that may be.
    assert found in (None, Passage(known[end : end + 5], length))


def test_few_places_are_lost_to_others_of_the_same_hash() -> None:
    memory = RequestMemory(ROOM)
    text = novel(10_000)
    memory.learn("", text)
    ends = range(LONGEST, len(text))
    found = [memory.recall("", text[end - LONGEST : end], 1) for end in ends[:-1]]
    whole = 0
    for end, passage in zip(ends, found, strict=False):
        assert passage is None or passage.following == [text[end]]
        whole += passage == Passage([text[end]], LONGEST)
    # Where a long text is divided into pieces, fewer tokens before a place are compared.
    assert whole > 0.98 * len(found)


def test_of_passages_as_long_the_newest_is_recalled() -> None:
    passage = novel(60)
    memory = RequestMemory(ROOM)
    for after in (7, 8, 7):
        memory.learn("", [*passage, after, after])
        assert memory.recall("", passage, 1) == Passage([after], LONGEST)


def test_a_longer_passage_is_recalled_before_a_newer_one() -> None:
    passage = novel(60)
    memory = RequestMemory(ROOM)
    memory.learn("", [*passage, 7, 7])
    memory.learn("", [*novel(40, 1), *passage[-SHORTEST - 1 :], 8, 8])
    assert memory.recall("", passage, 1) == Passage([7], LONGEST)
    assert memory.recall("", [1, *passage[-SHORTEST - 1 :]], 1) == Passage([8], SHORTEST + 1)


def test_an_owner_is_never_drafted_from_what_others_wrote() -> None:
    text = novel(300)
    drafter = Cascade([Suffix(memory=ROOM)])
    for other in ("b", ""):
        drafter.remember(other, novel(300, 1))
    drafter.remember("a", text)
    for owner, drafted in (("a", text[100:108]), ("b", []), ("", []), (None, [])):
        (draft,) = drafter.propose([ask(text[:100], recalls=owner)])
        assert draft.tokens.tolist() == drafted


def test_what_one_owner_writes_takes_nothing_from_another_who_wrote_the_same() -> None:
    # Were it otherwise, the speed of a reply would tell that somebody else has the same text.
    text = novel(2000)
    memory = RequestMemory(ROOM)
    memory.learn("a", text)
    memory.learn("b", text)
    found = [memory.recall("a", text[:end], 1) for end in range(SHORTEST, 2000)]
    assert sum(passage is None for passage in found) < 20  # chance collisions


def test_memory_is_bounded_and_the_newest_texts_stay() -> None:
    memory = RequestMemory(1_000_000)
    for seed in range(200):
        memory.learn(f"owner {seed % 300}", novel(500, seed))
        assert memory.n_bytes <= 1_000_000
        text = novel(500, seed)
        assert memory.recall(f"owner {seed % 300}", text[:100], 4) == Passage(
            text[100:104], LONGEST
        )
    assert memory.recall("owner 0", novel(100), 4) is None


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="counts pages of Linux")
def test_a_large_memory_takes_what_its_texts_take() -> None:
    """To have all of it at once takes a second, in which all replies wait."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    memory, text = RequestMemory(4 << 30), novel(2000)
    before = resident()
    memory.learn("", text)
    assert resident() - before < 100 << 20
    assert memory.n_bytes < 1 << 20
    assert memory.recall("", text[:100], 4) == Passage(text[100:104], LONGEST)


def test_texts_that_went_are_not_found_in_the_arrays_that_others_took() -> None:
    memory, rng = RequestMemory(100_000), random.Random(0)
    texts = [novel(rng.randrange(20, 300), seed) for seed in range(100)]
    arrays = set[int]()
    for n, text in enumerate(texts):
        memory.learn("", text)
        arrays |= {id(generation._stream) for generation in memory._generations}
        room = 100_000 // 24
        for earlier in texts[n::-1]:
            for end in (len(earlier) // 2, len(earlier) - 1, len(earlier)):
                found = memory.recall("", earlier[:end], 4)
                if found is not None:
                    assert found.following == earlier[end : end + 4] != []
                    assert room > len(earlier)
            room -= len(earlier)
    assert len(arrays) == 2


def test_many_owners_do_not_grow_the_memory() -> None:
    memory = RequestMemory(1_000_000)
    for i in range(2000):
        memory.learn(f"salt {i}", novel(40, i % 7))
    assert len(memory._owners) <= 256
    assert memory.recall("salt 0", novel(40), 1) is None
    assert memory.recall("salt 1999", novel(40, 1999 % 7)[:20], 1) is not None


def test_a_conversation_sent_again_and_again_is_stored_once() -> None:
    memory = RequestMemory(1_000_000)
    conversation: list[int] = []
    other = novel(500, 99)
    memory.learn("", other)
    for turn in range(80):
        conversation += novel(100, turn)
        memory.learn("", conversation)  # fifteen times what the memory has room for
    ends = range(100, 500)
    assert sum(memory.recall("", other[:end], 1) is not None for end in ends) > 0.9 * len(ends)


def test_texts_that_are_used_outlive_those_that_are_not() -> None:
    memory = RequestMemory(1_000_000)
    used, unused = novel(500, 1), novel(500, 2)
    memory.learn("", unused)
    for seed in range(3, 200):
        memory.learn("", used)
        memory.learn("", novel(500, seed))
    assert memory.recall("", used[:100], 1) is not None
    assert memory.recall("", unused[:100], 1) is None


@pytest.mark.parametrize("n_bytes", [0, 1, 500, 2000])
def test_a_memory_without_room_recalls_nothing(n_bytes: int) -> None:
    memory = RequestMemory(n_bytes)
    text = novel(10_000)
    memory.learn("", text)
    assert memory.n_bytes <= n_bytes
    found = memory.recall("", text[:5000], 4)
    assert found is None or found.following == text[5000:5004][: len(found.following)]


def test_a_long_text_is_drafted_through() -> None:
    text = [random.Random(1).randrange(150_000) for _ in range(1)] + novel(20_000)
    drafter = Suffix(memory=ROOM)
    drafter.remember("", text)
    at, lost = 100, 0
    while at < len(text) - 50:
        (draft,) = drafter.propose([ask(text[:at][-60:], k=40)])
        assert draft.tokens.tolist() == text[at : at + len(draft)]
        lost += len(draft) < 40
        at += len(draft) + 1
    assert lost < 20  # chance collisions


def test_the_conversation_itself_is_preferred_where_it_matches_as_well() -> None:
    passage = novel(60)
    drafter = Suffix(memory=ROOM)
    drafter.remember("", [*passage, *[1] * 9])
    (draft,) = drafter.propose([ask([*passage, *[2] * 9, *passage], k=3)])
    assert draft.tokens.tolist() == [2, 2, 2]
    # A short match here, a long one there; of equal ones, the text goes on as it did itself.
    for here, drafted in ((2, 1), (9, 1), (12, 2), (30, 2)):
        (draft,) = drafter.propose([ask([*passage[-here:], *[2] * 9, *passage], k=3)])
        assert draft.tokens.tolist() == [drafted] * 3


def test_short_matches_are_left_to_a_draft_model() -> None:
    text = novel(60)
    drafter = Suffix(min_match=4, memory=ROOM)
    drafter.remember("", text)
    (draft,) = drafter.propose([ask([1, *text[: SHORTEST - 1]])])
    assert not len(draft)


def test_what_was_forgotten_is_not_drafted() -> None:
    text = novel(60)
    drafter = Cascade([Suffix(memory=ROOM)])
    drafter.remember("", text)
    drafter.forget_requests()
    (draft,) = drafter.propose([ask(text[:30])])
    assert not len(draft)


def test_a_table_full_of_other_texts_costs_no_wrong_drafts() -> None:
    noise = np.random.default_rng(3)
    memory = RequestMemory(24_000_000)
    memory.learn("", noise.integers(0, 150_000, 450_000).tolist())
    text = noise.integers(0, 150_000, 2000).tolist()
    assert all(memory.recall("", text[:end], 4) is None for end in range(SHORTEST, 2000))
