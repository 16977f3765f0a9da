"""States on disk: whole or not there, bounded, of one setting and one owner."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from localspec.drafters.base import DraftState
from localspec.prefix_cache.disk import DAMAGED, DiskStates
from localspec.prefix_cache.file_format import DamagedError
from localspec.prefix_cache.files import KvStore
from localspec.prefix_cache.states import Checkpoint, Conversation, State, token_ids

STATE = memoryview(os.urandom(5000))


@pytest.fixture
def shelf(tmp_path: Path) -> KvStore:
    return KvStore("this", tmp_path / "states")


def state(tokens: list[int], data: memoryview = STATE, **more: object) -> State:
    return State(owner=more.pop("owner", ""), tokens=token_ids(tokens), state=data, **more)


def tokens_of(shelf: KvStore, owner: str = "") -> list[tuple[int, ...]]:
    return [tuple(saved.tokens.tolist()) for saved in shelf.saved(owner)[0]]


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no such files")
def test_what_is_no_file_is_not_opened(shelf: KvStore) -> None:
    assert shelf.put(state([1, 2, 3]), 1.0)
    (path,) = files_in(shelf._root)
    os.mkfifo(path.with_name("pipe.state"))  # whoever opens it waits for ever
    path.with_name("folder.state").mkdir()
    assert tokens_of(shelf) == [(1, 2, 3)]


def test_states_in_a_folder_that_others_may_write_to_are_none(shelf: KvStore) -> None:
    assert shelf.put(state([1, 2, 3]), 1.0)
    shelf._root.chmod(0o777)
    assert tokens_of(shelf) == []
    shelf._root.chmod(0o700)
    assert tokens_of(shelf) == [(1, 2, 3)]


def test_a_state_comes_back_as_it_was(shelf: KvStore) -> None:
    said = Conversation("half \ud83d", (1, 2, 3, 4))
    checkpoints = tuple(Checkpoint(token_ids([1, 2, 3][:n]), STATE[n : 9 * n]) for n in (1, 2))
    drafts = {"small": DraftState(2, STATE[7:99]), "other": DraftState(3, STATE[:0])}
    put = state([1, 2, 3], checkpoints=checkpoints, drafts=drafts, rate=9.0, conversation=said)
    assert shelf.put(put, 1.0)
    ((saved,), damaged) = shelf.saved()
    assert (saved.tokens.tolist(), saved.conversation, saved.rate) == ([1, 2, 3], said, 9.0)
    found = shelf.load(saved)
    assert found.state == STATE
    assert [c.tokens.tolist() for c in found.checkpoints] == [[1], [1, 2]]
    assert [c.state for c in found.checkpoints] == [c.state for c in checkpoints]
    assert found.drafts == drafts
    assert damaged == []


def test_other_settings_are_not_seen(shelf: KvStore, tmp_path: Path) -> None:
    shelf.put(state([1, 2, 3]), 1.0)
    assert tokens_of(KvStore("other", tmp_path / "states")) == []


def test_one_owner_does_not_see_the_states_of_another(shelf: KvStore, tmp_path: Path) -> None:
    for owner in ("", "a", "b"):
        shelf.put(state([1, 2, len(owner)], owner=owner), 1.0)
    assert tokens_of(shelf) == [(1, 2, 0)]
    assert tokens_of(shelf, "a") == tokens_of(shelf, "b") == [(1, 2, 1)]
    assert tokens_of(shelf, "c") == []
    (of_a,) = shelf.saved("a")[0]
    (of_b,) = shelf.saved("b")[0]
    of_b.path.write_bytes(of_a.path.read_bytes())  # moved by hand
    with pytest.raises(DamagedError):
        shelf.load(of_b)
    of_b.path.parent.mkdir(mode=0o700)
    of_b.path.write_bytes(of_a.path.read_bytes())
    assert KvStore("this", tmp_path / "states").saved("b") == ([], [of_b.path])


def test_states_of_an_earlier_format_go_without_a_word(shelf: KvStore, tmp_path: Path) -> None:
    shelf.put(state([1, 2, 3]), 1.0)
    ((saved,), _) = shelf.saved()
    saved.path.write_bytes(b"localspec state 2\n" + saved.path.read_bytes()[18:])
    assert KvStore("this", tmp_path / "states").saved() == ([], [])
    assert not saved.path.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="modes")
def test_nobody_else_can_read_it(shelf: KvStore, tmp_path: Path) -> None:
    shelf.put(state([1, 2, 3]), 1.0)
    for path in (tmp_path / "states").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_what_a_state_replaces_goes(shelf: KvStore) -> None:
    shelf.put(state([1, 2]), 1.0)
    shelf.put(state([1, 3]), 1.0)
    (first, _), _ = shelf.saved()
    shelf.put(state([1, 2, 4]), 1.0, replaces=[first])
    assert sorted(tokens_of(shelf)) == [(1, 2, 4), (1, 3)]


def test_what_spares_least_goes_first_and_loses_by_every_day_without_use(tmp_path: Path) -> None:
    limit = 3 * (len(STATE) + 500)
    shelf = KvStore("this", tmp_path / "states", limit)
    for number in range(3):
        shelf.put(state([number]), 8.0 if number == 0 else 1.0)
    now = time.time()
    for saved in shelf.saved()[0]:
        days = {0: 2, 1: 0, 2: 1}[int(saved.tokens[0])]  # worth 8 / 4, 1, 1 / 2
        os.utime(saved.path, (now - 86400 * days,) * 2)
    other = KvStore("other", tmp_path / "states", limit)
    other.put(state([7]), 4.0)
    assert sorted(tokens_of(shelf)) == [(0,), (1,)]
    other.put(state([8]), 4.0)
    assert sorted(tokens_of(shelf)) == [(0,)]
    assert not shelf.put(state([9], memoryview(bytes(20_000))), 99.0)


def test_a_state_of_a_clock_that_was_ahead_does_not_displace_others(tmp_path: Path) -> None:
    limit = 3 * (len(STATE) + 500)
    shelf = KvStore("this", tmp_path / "states", limit)
    for number in range(3):
        shelf.put(state([number]), 1.0)
    for saved in shelf.saved()[0]:
        if saved.tokens[0] == 1:
            os.utime(saved.path, (time.time() + 9000 * 86400,) * 2)
    shelf.put(state([7]), 1.0)
    assert sorted(tokens_of(shelf)) == [(0,), (2,), (7,)]


def test_what_another_process_writes_just_now_stays_when_the_clock_is_set(
    shelf: KvStore, tmp_path: Path
) -> None:
    shelf.put(state([1]), 1.0)
    written: list[Path] = []

    def set_clock() -> bool:
        for part in tmp_path.rglob("*.part"):  # none while it looks for room
            os.utime(part, (time.time() - 7200,) * 2)
            KvStore("this", tmp_path / "states").put(state([3]), 1.0)
            written.append(part)
        return False

    assert shelf.put(state([1, 2]), 1.0, cancelled=set_clock)
    assert written
    assert sorted(tokens_of(shelf)) == [(1,), (1, 2), (3,)]


@pytest.mark.parametrize("hours", [-2, 2000])
def test_what_a_killed_writer_left_is_removed(shelf: KvStore, tmp_path: Path, hours: float) -> None:
    shelf.put(state([1]), 1.0)
    ended = subprocess.Popen(["true"])
    ended.wait()
    own = os.getpid()  # in a container the next process often has the number of the killed one
    left = [
        f"{ended.pid}-x.part",
        "of-an-earlier-version.part",
        f"{own}-1.00-x.part",
        f"{own}-x.part",
    ]
    left += [f"{'9' * 20}-1.00-x.part"]
    for name in left:
        part = next(tmp_path.rglob("*.state")).with_name(name)
        part.touch()
        os.utime(part, (time.time() + 3600 * hours,) * 2)
    shelf.put(state([2]), 1.0)
    assert not [*tmp_path.rglob("*.part")]


def test_writing_can_be_given_up_and_leaves_nothing(shelf: KvStore, tmp_path: Path) -> None:
    assert not shelf.put(state([1]), 1.0, cancelled=lambda: True)
    assert files_in(tmp_path) == []


def test_a_folder_goes_with_its_last_state_and_what_is_empty_with_the_next_one(
    tmp_path: Path,
) -> None:
    shelf = KvStore("this", tmp_path / "states", limit=6000)
    for n in range(5):  # each new ``cache_salt`` is an owner
        (tmp_path / "states" / f"this-{n}").mkdir(mode=0o700, parents=True)
        assert shelf.put(state([n], owner=f"owner {n}"), 1.0)
        assert [*(tmp_path / "states").iterdir()] == [shelf._folder(f"owner {n}")]
    ((saved,), _) = shelf.saved("owner 4")
    saved.path.write_bytes(b"damaged")
    assert shelf.saved("owner 4") == ([], [saved.path])
    assert not [*(tmp_path / "states").iterdir()]
    assert not shelf._read


def test_a_folder_that_another_process_removes_before_a_file_is_in_it_is_made_again(
    shelf: KvStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, removed = tempfile.mkstemp, []

    def raced(*given: Any, **more: Any) -> tuple[int, str]:
        if not removed:
            removed.append(more["dir"])
            more["dir"].rmdir()
        return make(*given, **more)

    monkeypatch.setattr(tempfile, "mkstemp", raced)
    assert shelf.put(state([1, 2]), 1.0)
    assert removed
    assert tokens_of(shelf) == [(1, 2)]


def test_who_asks_waits_for_no_listing_of_countless_folders(tmp_path: Path) -> None:
    shelf = KvStore("this", tmp_path / "states", limit=50_000)
    for n in range(9):
        assert shelf.put(state([n], owner=f"owner {n}"), 1.0)
    for looks in (0, 5, 12):  # at nine folders, then at what nine files are worth
        turns = iter([False] * looks)
        assert not shelf.put(state([9]), 1.0, cancelled=lambda: next(turns, True))  # noqa: B023
        assert next(turns, None) is None
    assert len(files_in(tmp_path)) == 9
    assert shelf.put(state([9]), 1.0)
    assert len(files_in(tmp_path)) == 9


def test_a_full_disk_leaves_nothing(
    shelf: KvStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        shelf.put(state([1]), 1.0)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    "place", ["magic", "length", "seconds", "header", "state", "digest", "cut", "empty"]
)
def test_a_damaged_file_is_found_and_removed(shelf: KvStore, place: str) -> None:
    shelf.put(state([1, 2, 3]), 1.0)
    ((saved,), _) = shelf.saved()
    raw = bytearray(saved.path.read_bytes())
    at = {"magic": 3, "length": 19, "seconds": 36, "header": 90, "state": 1000, "digest": -3}
    if place in at:
        raw[at[place]] ^= 0x15
    saved.path.write_bytes(raw[:-9] if place == "cut" else b"" if place == "empty" else raw)
    found, damaged = shelf.saved()
    if found:
        with pytest.raises(DamagedError):
            shelf.load(found[0])
    else:
        assert damaged == [saved.path]
    assert not saved.path.exists()


def test_no_text_of_a_damaged_header_is_continued(shelf: KvStore, tmp_path: Path) -> None:
    """The tokens of its conversation are used before its state is looked at."""
    said = Conversation("What is this?", (1, 2, 3, 104, 5))
    shelf.put(state([1, 2, 3], conversation=said), 1.0)
    ((saved,), _) = shelf.saved()
    written = saved.path.read_bytes()
    end = written.index(b"]}", written.index(b"text_tokens"))
    for at in range(18, end + 2):  # behind the magic
        for change in (0x01, 0x15, 0x80):
            saved.path.write_bytes(written[:at] + bytes([written[at] ^ change]) + written[at + 1 :])
            disk = DiskStates(KvStore("this", tmp_path / "states"), cuts_anywhere=True)
            assert disk.conversations("") == [], (at, change)
            assert disk.notices == [DAMAGED]
            assert not saved.path.exists()
            saved.path.parent.mkdir(mode=0o700)
    saved.path.write_bytes(written)
    disk = DiskStates(KvStore("this", tmp_path / "states"), cuts_anywhere=True)
    assert disk.conversations("") == [said]
    assert disk.notices == []


def test_a_state_that_can_never_fit_is_known_before_it_is_copied(tmp_path: Path) -> None:
    shelf = KvStore("this", tmp_path / "states", limit=10_000)
    assert shelf.may_hold(9_000)
    assert not shelf.may_hold(11_000)
    for start in (0, 100):
        assert shelf.put(state([start, start + 1], STATE[:3000]), 1.0, cancelled=lambda: False)
    assert shelf.may_hold(9_000)


def test_only_where_the_disk_is_nearly_full_all_files_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, full = KvStore("this", tmp_path / "states"), shutil.disk_usage(tmp_path)._replace(free=9)
    for n in range(2):
        assert shelf.put(state([n], owner=f"owner {n}"), 1.0)
    assert shelf.may_hold(9_000, lambda: True)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    assert shelf.may_hold(9_000)
    assert not shelf.may_hold(9_000, lambda: True)
    assert not shelf.may_hold(12_000)


def test_refused_states_are_not_tried_again_and_take_no_memory(tmp_path: Path) -> None:
    disk = DiskStates(KvStore("this", tmp_path / "states", limit=100), cuts_anywhere=True)
    refused = state([*range(5000)])
    assert disk.wants("", refused.tokens)
    disk.write(refused, 1.0, lambda: False)
    assert not disk.wants("", refused.tokens)
    assert disk.wants("another", refused.tokens)
    assert sum(map(len, disk._refused)) <= 16


def test_countless_owners_leave_nothing_in_memory_and_are_told_again(tmp_path: Path) -> None:
    """Each new ``cache_salt``, and each new scale of an adapter, is an owner."""
    shelf = KvStore("this", tmp_path / "states")
    disk = DiskStates(shelf, cuts_anywhere=True)
    said = Conversation("Hi", (1, 2, 3))
    for n in range(80):
        owner = f"owner {n}"
        if n % 2:
            assert shelf.put(state([1, 2, n], owner=owner, conversation=said), 1.0)
        assert disk.conversations(owner) == [said] * (n % 2)
        assert disk.conversations(owner) == []
    first = disk.of("owner 1")
    for n in range(300):
        disk.conversations(f"without {n}")
    assert len(disk._listed) <= 64
    assert not shelf._read
    disk.discard(*first)  # a request of an owner that was forgotten meanwhile
    assert disk.conversations("owner 1") == [said]
    assert [tuple(one.tokens) for one in disk.of("owner 1")] == [(1, 2, 1)]


def test_files_that_are_gone_are_not_remembered_as_told(tmp_path: Path) -> None:
    shelf = KvStore("this", tmp_path / "states")
    disk = DiskStates(shelf, cuts_anywhere=True)
    for n in range(50):
        said = Conversation(f"Hi {n}", (1, 2, n))
        assert shelf.put(state([1, 2, n], conversation=said), 1.0, replaces=disk.of(""))
        os.utime(shelf._root / "this", ns=(n + 1, n + 1))  # clocks of folders are coarse
        assert disk.conversations("") == [said]
    assert len(disk._listed[""].told) == 1
