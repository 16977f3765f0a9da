"""The prefix cache on targets that are tables: random conversations of several owners on several
sequences, with failures of every kind. Whatever is restored is a beginning of the prompt.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tables
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.errors import DecodeError
from localspec.drafters.base import Drafter, Off
from localspec.prefix_cache import cache as cache_module
from localspec.prefix_cache import disk, memory, search
from localspec.prefix_cache.cache import PrefixCache
from localspec.prefix_cache.file_format import Saved
from localspec.prefix_cache.files import KvStore
from localspec.prefix_cache.memory import MemoryStates
from localspec.prefix_cache.states import NONE, Checkpoint, Restored, State, shared, token_ids
from localspec.testing import TableTarget

V = 5
TABLE = tables.random_table(7, v=V)
SLOW = 10.0
"""Tokens per second of reading, unless a test says otherwise."""
LARGE = 1 << 30


@pytest.fixture(autouse=True)
def _always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(search.Moving, "seconds", lambda *_: 0.0)


class World:
    """Sequences of a table, answering as the runtime does."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        cuts_anywhere: bool = True,
        limit: int = LARGE,
        drafter: Drafter | None = None,
    ) -> None:
        self.target = TableTarget(TABLE, cuts_anywhere=cuts_anywhere)
        self.cache = PrefixCache(self.target, drafter or Off(), limit)
        self.cached: dict[int, list[int]] = {}
        if folder is not None:
            self.cache.use_disk(KvStore("setting", folder))

    def begin(
        self, seq: int, prompt: Sequence[int], owner: str = "", stable: int | None = None
    ) -> Restored | object:
        """Read a prompt; what the sequence then holds is compared with it."""
        found = self.cache.restore(seq, self.cached.get(seq, []), prompt, owner)
        assert self.target.cache.get(seq, []) == list(prompt[: found.length])
        assert found.length < len(prompt)
        positions = self.cache.positions(seq, prompt, stable)
        at = found.length
        for end in sorted({*positions, len(prompt) - 1}):
            if end > at:
                self.target.read(seq, prompt[at:end])
                self.cache.has_read(seq, prompt[at:end], (end - at) / SLOW)
                at = end
            if end in positions:
                self.cache.checkpoint(seq)
        self.cached[seq] = list(prompt[:-1])
        return found

    def end(self, seq: int, prompt: Sequence[int], reply: Sequence[int]) -> None:
        """Append a reply, all but its last token, which is pending."""
        self.target.read(seq, [prompt[-1], *reply[:-1]])
        self.cached[seq] += [prompt[-1], *reply[:-1]]
        assert self.target.cache[seq] == self.cached[seq]
        self.cache.finished(seq, self.cached[seq])

    def ask(
        self,
        seq: int,
        prompt: Sequence[int],
        owner: str = "",
        reply: Sequence[int] = (1, 2, 3),
        stable: int | None = None,
    ) -> int:
        """The whole of a request; returns the tokens that were not read."""
        found = self.begin(seq, prompt, owner, stable)
        self.end(seq, prompt, reply)
        return found.length

    def rest(self) -> None:
        self.cache.rest(lambda: False)


TURNS = st.lists(
    st.tuples(
        st.integers(0, 2),  # sequence
        st.sampled_from(["", "a", "b"]),
        st.integers(0, 5),  # which conversation is continued
        st.integers(0, 12),  # from where
        st.lists(st.integers(0, 1), min_size=1, max_size=9),  # new tokens
        st.sampled_from(["", "", "rest", "damage", "truncate", "restart", "remove"]),
    ),
    max_size=14,
)


@pytest.mark.parametrize("cuts_anywhere", [True, False])
@given(turns=TURNS, limit=st.sampled_from([0, 200, 2000, LARGE]), stable=st.booleans())
def test_what_is_restored_is_a_beginning_of_the_prompt_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory,
    turns: list[tuple[int, str, int, int, list[int], str]],
    limit: int,
    *,
    cuts_anywhere: bool,
    stable: bool,
) -> None:
    folder = tmp_path_factory.mktemp("states")
    world = World(folder, cuts_anywhere=cuts_anywhere, limit=limit)
    said: list[list[int]] = [[1, 0]]
    of_owner: dict[str, list[list[int]]] = {"": [], "a": [], "b": []}
    for seq, owner, which, at, new, happens in turns:
        earlier = said[which % len(said)]
        prompt = [*earlier[: 1 + at], *new]
        found = world.ask(seq, prompt, owner, stable=len(prompt) - 2 if stable else None)
        assert found == 0 or any(mine[:found] == prompt[:found] for mine in of_owner[owner])
        said.append(world.cached[seq])
        of_owner[owner].append(world.cached[seq])
        if happens:
            world.rest()
        files = sorted(folder.rglob("*.state"))
        if happens == "restart":
            world = World(folder, cuts_anywhere=cuts_anywhere, limit=limit)
        elif files and happens in {"damage", "truncate", "remove"}:
            victim = files[len(said) % len(files)]
            raw = bytearray(victim.read_bytes())
            raw[(len(said) * 37) % len(raw)] ^= 0x41
            victim.write_bytes(raw if happens == "damage" else raw[: len(raw) // 2])
            if happens == "remove":
                victim.unlink()


def test_a_prompt_of_another_sequence_is_copied() -> None:
    world = World()
    prompt = [1, 2, 3, 4] * 5
    world.begin(0, prompt)
    found = world.begin(1, [*prompt, 0, 1])
    assert isinstance(found, Restored)
    assert (found.length, found.place) == (19, "other sequence")
    world.end(0, prompt, [1, 1])
    world.end(1, [*prompt, 0, 1], [2, 2])


def test_nothing_of_one_owner_is_reused_for_another(tmp_path: Path) -> None:
    prompt, second = [1, 2, 3, 4] * 5, [0] * 9
    world = World(tmp_path)
    world.ask(0, prompt, "a")
    world.ask(1, second, "a")
    world.rest()
    world.ask(0, [3] * 9, "a")
    assert world.ask(2, [*prompt, 1], "b") == 0  # in memory and on disk
    assert world.ask(3, [*second, 1], "c") == 0  # in another sequence
    assert world.ask(1, [*second, 1], "d") == 0  # in this one
    assert world.ask(4, [*prompt, 1], "a") == 20
    again = World(tmp_path)
    assert again.begin(0, [*prompt, 1], "c") is NONE
    assert again.begin(1, [*prompt, 1], "a").length == 20


def test_a_conversation_that_was_displaced_comes_back_from_memory() -> None:
    world = World()
    first, second = [1, 2, 3, 4] * 5, [4, 3, 2] * 7
    for prompt in (first, second):
        assert world.ask(0, prompt) == 0
    found = world.begin(0, [*first, 1, 2, 0])
    assert (found.place, found.length) == ("memory", 22)
    assert found.saved_seconds == pytest.approx(22 / SLOW, rel=0.2)


def test_a_recurrent_sequence_goes_back_to_where_the_next_turn_leaves_it() -> None:
    """A thought is dropped from the next prompt: it leaves the reply at the checkpoint."""
    world = World(cuts_anywhere=False)
    prompt = [1, 2, 3, 4] * 5
    assert world.ask(0, prompt, reply=[0, 0, 0, 4, 4], stable=18) == 0
    following = [*prompt[:18], 4, 4, 1, 2, 3]
    assert world.ask(0, following, stable=21) == 18
    assert world.ask(0, [*following[:21], 3, 3, 3]) == 21


def test_the_second_prompt_with_a_common_beginning_marks_it_for_the_third() -> None:
    world = World(cuts_anywhere=False)
    system = [1, 2, 3, 4] * 5
    lengths = [world.ask(0, [*system, n, n, 2, 1]) for n in range(4)]
    assert lengths == [0, 0, 20, 20]


def test_checkpoints_outlive_the_sequence_in_memory_and_on_disk(tmp_path: Path) -> None:
    world = World(tmp_path, cuts_anywhere=False)
    prompt = [1, 2, 3, 4] * 5
    world.ask(0, prompt, reply=[0] * 5, stable=18)
    world.rest()
    world.ask(0, [3] * 9)  # displaces it
    following = [*prompt[:18], 4, 4, 1, 2, 3]
    found = world.begin(0, following)
    assert (found.place, found.length) == ("memory", 18)
    found = World(tmp_path, cuts_anywhere=False).begin(2, following)
    assert (found.place, found.length) == ("disk", 18)


def test_what_is_read_faster_is_not_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = [1, 2, 3, 4] * 5
    world = World(tmp_path)
    world.ask(0, prompt)
    world.ask(0, [3] * 9)
    world.rest()
    monkeypatch.setattr(search.Moving, "seconds", lambda *_: 3.0)  # 20 tokens are read in 2 s
    assert world.begin(0, [*prompt, 1]) is NONE
    assert World(tmp_path).begin(0, [*prompt, 1]) is NONE


def test_a_restore_that_the_target_refuses_leaves_the_sequence_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    first, second = [1, 2, 3, 4] * 5, [4, 3, 2] * 7
    for prompt in (first, second):
        world.ask(0, prompt)

    def refuse(self: TableTarget, seq: int, state: object) -> None:
        self.cache[seq] = [9]
        raise DecodeError("no")

    monkeypatch.setattr(TableTarget, "restore", refuse)
    assert world.cache.restore(0, world.cached[0], [*first, 1]) is NONE
    assert world.target.cache[0] == []
    (notice,) = world.cache.take_notices()
    assert "read again" in notice
    assert world.cache.restore(0, [], [*first, 1]) is NONE
    assert world.cache.take_notices() == []  # it is forgotten


def test_a_state_of_another_length_than_its_tokens_is_refused() -> None:
    world = World()
    first, second = [1, 2, 3, 4] * 5, [4, 3, 2] * 7
    for prompt in (first, second):
        world.ask(0, prompt)
    (state,) = world.cache._memory.all()
    object.__setattr__(state, "state", state.state[:-4])
    assert world.cache.restore(0, world.cached[0], [*first, 1]) is NONE
    assert world.target.cache[0] == []


def test_a_damaged_file_is_told_and_something_else_is_taken(tmp_path: Path) -> None:
    world = World(tmp_path)
    prompt = [1, 2, 3, 4] * 5
    world.ask(0, prompt)
    world.rest()
    (path,) = tmp_path.rglob("*.state")
    raw = bytearray(path.read_bytes())
    raw[-40] ^= 1
    path.write_bytes(raw)
    world = World(tmp_path)
    world.ask(0, prompt[:9])
    assert world.begin(0, [*prompt, 1]).length == 9
    assert world.cache.take_notices() == [disk.DAMAGED]
    assert not path.exists()


def test_a_file_is_read_before_the_models_are_kept_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    prompt, other = [1, 2, 3, 4] * 5, [4, 3, 2] * 7
    for seq, tokens in enumerate((prompt, other)):
        world.ask(seq, tokens)
    world.rest()
    read: list[int] = []
    load = KvStore.load

    def counted(self: KvStore, saved: Saved) -> State:
        read.append(len(saved.tokens))
        return load(self, saved)

    monkeypatch.setattr(KvStore, "load", counted)
    world.cache.prefetch([*prompt, 1])  # a sequence has it
    assert read == []
    world = World(tmp_path)
    world.cache.prefetch([*prompt, 1])
    assert read == [22]
    assert world.ask(0, [*prompt, 1]) == 20
    assert read == [22]
    world.cache.prefetch([*prompt, 2])  # it is there now
    world.cache.prefetch([*other, 1], "b")
    world.cache.prefetch([0, 1, 2])
    assert read == [22]
    world.cache.prefetch([*other, 1])
    for path in tmp_path.rglob("*.state"):
        path.unlink()
    assert world.ask(1, [*other, 1]) in {0, 21}
    assert World(tmp_path, limit=0).cache.prefetch(prompt) is None


def test_a_damaged_file_is_told_where_it_was_to_be_read_before(tmp_path: Path) -> None:
    world = World(tmp_path)
    prompt = [1, 2, 3, 4] * 5
    world.ask(0, prompt)
    world.rest()
    (path,) = tmp_path.rglob("*.state")
    raw = bytearray(path.read_bytes())
    raw[-40] ^= 1
    path.write_bytes(raw)
    world = World(tmp_path)
    world.cache.prefetch([*prompt, 1])
    assert world.ask(0, [*prompt, 1]) == 0
    assert world.cache.take_notices() == [disk.DAMAGED]


@pytest.fixture
def moving_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four 300ths of a second for each token."""
    monkeypatch.setattr(search.Moving, "seconds", lambda _, n: n / 300)


SHORT, LONG = [1, 2, 3, 4] * 2, [1, 2, 3, 4] * 20
"""Their states, and a reply in each, are moved in 0.13 and 1.1 seconds."""


@pytest.mark.usefixtures("moving_takes_time")
@pytest.mark.parametrize("place", ["other sequence", "memory", "disk"])
def test_nothing_large_is_moved_while_others_wait(tmp_path: Path, place: str) -> None:
    for prompt, served in ((SHORT, place != "other sequence"), (LONG, False)):
        found = []
        for waited_for in (True, False):
            world = World(tmp_path / f"{waited_for} {len(prompt)}")
            world.ask(0, prompt)
            if place == "disk":
                world.rest()
                world = World(tmp_path / f"{waited_for} {len(prompt)}")
                world.cache.prefetch([*prompt, 1])
            elif place == "memory":
                world.ask(0, [0] * 5)
            asked = world.cache.restore(1, [], [*prompt, 1], waited_for=waited_for)
            found.append((asked.length, getattr(asked, "place", None)))
        whole = (len(prompt), place)
        assert found == [whole if served else (0, None), whole]


@pytest.mark.usefixtures("moving_takes_time")
def test_nothing_large_is_saved_while_others_wait() -> None:
    for prompt, saved in ((SHORT, True), (LONG, False)):
        for waited_for in (True, False):
            world = World()
            world.ask(0, prompt)
            world.cache.restore(0, world.cached[0], [0] * 5, waited_for=waited_for)
            assert bool(world.cache._memory.all()) is (saved or not waited_for)


@pytest.mark.usefixtures("moving_takes_time")
def test_a_large_sequence_goes_on_in_place_while_others_wait() -> None:
    world = World()
    world.ask(0, LONG)
    again = world.cache.restore(0, world.cached[0], [*LONG, 1], waited_for=True)
    assert (again.length, again.place) == (len(LONG), "sequence")


@pytest.mark.usefixtures("moving_takes_time")
def test_no_file_is_read_while_others_wait_unless_it_is_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    World(tmp_path).ask(0, SHORT)
    one = World(tmp_path)
    one.ask(0, SHORT)
    one.rest()
    world = World(tmp_path)
    reading = world.cache._rates.disk
    monkeypatch.setattr(
        search.Moving, "seconds", lambda own, n: n / (100 if own is reading else 300)
    )
    asked = [*SHORT, 1]
    assert world.cache.restore(0, [], asked, waited_for=True) is NONE
    world.cache.prefetch(asked)
    found = world.cache.restore(1, [], asked, waited_for=True)
    assert (found.length, found.place) == (len(SHORT), "disk")


def test_a_file_at_hand_is_ranked_by_what_moving_it_still_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = World(tmp_path)
    one.ask(0, SHORT)
    one.rest()
    world = World(tmp_path)
    reading = world.cache._rates.disk
    monkeypatch.setattr(
        search.Moving, "seconds", lambda own, n: n / (60 if own is reading else 300)
    )
    world.ask(0, SHORT[:4], reply=(0, 0))
    world.cache.prefetch([*SHORT, 1])
    found = world.cache.restore(0, world.cached[0], [*SHORT, 1])
    assert (found.length, found.place) == (len(SHORT), "disk")


def test_two_processes_share_a_folder(tmp_path: Path) -> None:
    one, other = World(tmp_path), World(tmp_path)
    prompt = [1, 2, 3, 4] * 5
    assert other.ask(0, [0, 0]) == 0
    one.ask(0, prompt)
    one.rest()
    assert other.begin(0, [*prompt, 1]).place == "disk"  # written after it began
    other.end(0, [*prompt, 1], [1])
    for path in tmp_path.rglob("*.state"):
        path.unlink()
    assert other.begin(1, [*prompt, 1, 2]).place == "other sequence"
    assert World(tmp_path).begin(0, [*prompt, 1]) is NONE


def test_a_file_that_is_removed_between_listing_and_reading_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    prompt = [1, 2, 3, 4] * 5
    world.ask(0, prompt)
    world.rest()
    world = World(tmp_path)
    assert world.cache.conversations() == []  # it lists the files; they have no text
    monkeypatch.setattr(KvStore, "version", lambda *_: 1)
    for path in tmp_path.rglob("*.state"):
        path.unlink()
    assert world.begin(0, [*prompt, 1]) is NONE
    assert world.cache.take_notices() == []


def test_a_full_disk_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    world = World(tmp_path)
    world.ask(0, [1, 2, 3, 4] * 5)
    for _ in range(3):
        world.rest()
    world.ask(1, [4, 3, 2] * 5)
    world.rest()
    (notice,) = world.cache.take_notices()
    assert os.strerror(errno.ENOSPC) in notice
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_request_goes_where_most_of_its_prompt_is_and_least_is_lost() -> None:
    world = World()
    chat, agent = [1, 2, 3, 4] * 5, [4, 3, 2] * 7
    world.ask(0, chat)
    world.ask(1, agent)
    assert world.cache.choose([*chat, 1], "", [0, 1, 2]) == 0
    assert world.cache.choose([*agent, 1], "", [0, 1, 2]) == 1
    assert world.cache.choose([*agent[:2], 1], "", [0, 1, 2]) == 2  # most of it would be lost
    assert world.cache.choose([*chat, 1], "other", [0, 1, 2]) == 2
    assert world.cache.choose([2, 2], "", [0, 1]) == 0  # unused for longest


# -- states in memory ---------------------------------------------------------------------------


def state(tokens: list[int], n_bytes: int, *lengths: int) -> State:
    ids = token_ids(tokens)
    checkpoints = tuple(Checkpoint(ids[:n], memoryview(b"")) for n in lengths)
    return State("", ids, memoryview(bytes(n_bytes)), checkpoints)


def test_the_state_that_spares_fewest_seconds_per_byte_goes_first() -> None:
    states = MemoryStates(1000, room=lambda _: True)
    cheap, dear, newest = (state([n], 400) for n in range(3))
    states.add(dear, 4.0)
    states.add(cheap, 1.0)
    assert states.add(newest, 2.0)
    assert states.all() == [dear, newest]
    assert not states.add(state([7], 1001), 99.0)
    assert states.n_bytes == 800


def test_a_state_that_is_never_used_goes_in_the_end() -> None:
    states = MemoryStates(1000, room=lambda _: True)
    once = state([0], 600)
    states.add(once, 100.0)
    for n in range(1, 400):
        states.add(state([n], 600), 1.0)
    assert once not in states.all()


def test_what_is_used_stays() -> None:
    states = MemoryStates(1000, room=lambda _: True)
    used, other = state([0], 400), state([1], 400)
    states.add(used, 1.0)
    states.add(other, 1.0)
    states.used(used)
    states.add(state([2], 400), 1.5)
    assert used in states.all()
    assert other not in states.all()


@pytest.mark.parametrize("cuts_anywhere", [True, False])
def test_a_state_replaces_those_that_it_serves_for(*, cuts_anywhere: bool) -> None:
    states = MemoryStates(1000, cuts_anywhere=cuts_anywhere, room=lambda _: True)
    beginning, marked = state([1], 10), state([1, 2], 10)
    for each in (beginning, marked, state([1, 2, 3], 10, 2)):
        states.add(each, 1.0)
    lengths = [len(s.tokens) for s in states.all()]
    assert lengths == ([3] if cuts_anywhere else [1, 3])


def test_no_state_is_kept_where_the_machine_has_no_memory_to_spare() -> None:
    assert not MemoryStates(1 << 40, room=lambda _: False).fits(1)
    assert not memory.has_room(1 << 60)
    assert 0 < memory.default_limit() <= 8 << 30


def test_the_bytes_of_checkpoints_are_bounded() -> None:
    world = World(cuts_anywhere=False, limit=2 * 4 * 50)
    prompt = [1, 2, 3, 4] * 10
    for turn in range(6):
        world.ask(turn % 2, [*prompt, turn % 5, 1], stable=len(prompt) + 1)
        taken = sum(len(c.state) for live in world.cache._live.values() for c in live.checkpoints)
        assert taken <= 4 * 50


def test_token_ids_are_compared_as_a_whole() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        a, b = (rng.integers(0, 2, rng.integers(0, 6)).tolist() for _ in range(2))
        n = shared(token_ids(a), token_ids(b))
        assert a[:n] == b[:n]
        assert n in {len(a), len(b)} or a[n] != b[n]
