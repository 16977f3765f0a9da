"""The embedded pair grown to the cost of a large one computes the same function."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from localspec import GREEDY, Finished, Message, Options, Runtime
from localspec.core.errors import LocalspecError, OutOfMemoryError
from localspec.core.files import paths
from localspec.core.files.checked import keeps_holes
from localspec.core.files.paths import DEMO_DIR
from localspec.demo import pair as pair_module
from localspec.demo.pair import Growth, grow, target_bytes
from localspec.demo.race import PROMPT
from localspec.models.gguf.growth import SmallModel
from localspec.models.memory.machine import Memory
from localspec.models.memory.speed import MachineSpeed

GB = 10**9


def tokens(target: Path, draft: Path, *, drafting: bool) -> tuple[int, ...]:
    options = Options(model=str(target), draft=str(draft), draft_max=3, context=256, threads=1)
    with Runtime.open(options) as runtime:
        events = runtime.reply(
            [Message("user", PROMPT)], sampling=GREEDY, max_tokens=48, draft=drafting
        )
        *_, last = events
        assert isinstance(last, Finished)
        return last.reply.tokens


def test_the_grown_pair_writes_the_text_of_the_embedded_pair_with_and_without_drafting() -> None:
    small = tokens(DEMO_DIR / "target.gguf", DEMO_DIR / "draft.gguf", drafting=False)
    pair = grow(60_000_000)
    for drafting in (False, True):
        assert tokens(pair.target, pair.draft, drafting=drafting) == small
    pair.remove()
    assert not list((paths.cache_dir() / "race").iterdir())


def test_a_grown_model_has_the_size_asked_for_and_takes_little_of_the_disk(tmp_path: Path) -> None:
    small = SmallModel(DEMO_DIR / "target.gguf")
    shape = small.shape_for(2 * GB)
    small.grow(shape, tmp_path / "large.gguf")
    facts = (tmp_path / "large.gguf").stat()
    assert facts.st_size == pytest.approx(2 * GB, rel=0.05)
    assert facts.st_blocks * 512 < 150_000_000
    assert shape.width == 4096  # 16 times as wide, so that the norms are exact


def test_a_full_disk_is_one_sentence_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(SmallModel, "grow", full)
    with pytest.raises(LocalspecError, match=r"cannot write to .*No space left"):
        grow(100_000_000)
    assert not list((paths.cache_dir() / "race").iterdir())


def test_a_disk_without_room_or_holes_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pair_module, "_ON_DISK", 1 << 60)
    with pytest.raises(LocalspecError, match=r"the race needs .* are free"):
        grow(100_000_000)
    monkeypatch.undo()
    monkeypatch.setattr(pair_module, "keeps_holes", lambda _: False)
    with pytest.raises(LocalspecError, match="no sparse files"):
        grow(100_000_000)


def test_files_of_a_killed_process_are_deleted_by_the_next_race() -> None:
    left = paths.make(paths.cache_dir() / "race") / "pair-999999999-abc"
    left.mkdir()
    (left / "target.gguf").write_bytes(b"x")
    grow(60_000_000).remove()
    assert not left.exists()


def test_files_are_deleted_where_the_race_is_left_while_they_are_made() -> None:
    growth = Growth(60_000_000)
    growth.remove()
    assert not growth.run().folder.exists()


def machine(seconds: float) -> MachineSpeed:
    return MachineSpeed({k: {1: seconds} for k in ("Q4_0", "Q4_K")}, {})


def test_the_size_is_that_of_fifteen_tokens_a_second_bounded_by_free_memory() -> None:
    ample = Memory((), 64 * GB, 64 * GB)
    assert target_bytes(machine(40e-12), ample) == pytest.approx(1.67 * GB, rel=0.01)
    assert target_bytes(machine(1e-12), ample) == 6 * GB
    assert target_bytes(machine(40e-12), Memory((), 2 * GB, 64 * GB)) < 0.7 * GB
    with pytest.raises(OutOfMemoryError, match="free memory"):
        target_bytes(machine(40e-12), Memory((), GB // 10, GB))


def test_holes_are_kept_on_this_disk_and_nothing_is_left(tmp_path: Path) -> None:
    assert keeps_holes(tmp_path)
    assert not list(tmp_path.iterdir())
