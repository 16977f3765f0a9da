"""A race with the real engine and a small grown pair."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from localspec.core.files import paths
from localspec.core.files.paths import DEMO_DIR
from localspec.core.options import Options
from localspec.demo import race as module
from localspec.demo.pair import GrownPair
from localspec.demo.race import Machine, Race
from localspec.models.memory.machine import Memory


class Here(Machine):
    """This machine, not measured; it always drafts, whatever passes take while tests run. One
    thread: several of llama.cpp spin while they wait for each other.
    """

    def options(self, pair: GrownPair) -> Options:
        return replace(super().options(pair), draft_max=4, threads=1)

    async def speed(self) -> None:
        return None

    async def calm(self) -> bool:
        return True

    async def memory(self) -> Memory:
        return Memory((), 10**10, 10**10)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "target_bytes", lambda *_: 100_000_000)


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (DEMO_DIR / "target.gguf").exists(), reason="no demo pair is there"),
]


async def test_plain_and_drafted_text_of_the_grown_pair_are_equal_and_nothing_is_left() -> None:
    race = Race(Here())
    await race.run()
    assert race.failure is None
    assert race.plain.ids == race.drafted.ids
    assert len(race.plain.ids) > 60
    for lane in (race.plain, race.drafted):
        assert lane.reply is not None
        assert "localspec pull" not in lane.reply.text  # it would name a model for no machine
    assert race.status.startswith("identical: all ")
    assert any(token.source for token in race.drafted.tokens)
    assert not any(token.source for token in race.plain.tokens)
    assert not list((paths.cache_dir() / "race").iterdir())


@pytest.mark.parametrize(
    "reached",
    [
        pytest.param(lambda race: race.doing.startswith("making"), id="the pair is made"),
        pytest.param(lambda race: race.n_bytes > 0, id="the pair is loaded"),
        pytest.param(lambda race: race.plain.tokens, id="plain decoding runs"),
        pytest.param(lambda race: race.drafted.tokens, id="drafting runs"),
    ],
)
async def test_a_race_that_is_cancelled_leaves_neither_files_nor_a_process(
    reached: Callable[[Race], object],
) -> None:
    race = Race(Here())
    task = asyncio.create_task(race.run())
    while not reached(race):
        assert not task.done()
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await asyncio.get_running_loop().shutdown_default_executor()  # a growth that is not over
    assert race.over
    folder = paths.cache_dir() / "race"
    assert not folder.exists() or not list(folder.iterdir())
