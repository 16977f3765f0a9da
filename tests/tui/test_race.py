"""The race on the screen, with an engine that replays rounds."""

import asyncio
import contextlib
import dataclasses
import types

import pytest
from fake_engine import INFO, FakeEngine, Script
from narrow import go_through_narrow_sizes
from textual import events

from localspec.core.errors import LocalspecError, OutOfMemoryError
from localspec.core.events import Loading, Speculation
from localspec.core.files import paths
from localspec.demo import race as module
from localspec.demo.race import Machine
from localspec.loading.offers import Best, Offer
from localspec.models.memory.machine import Gpu, Memory
from localspec.models.memory.speed import Expected, Reads
from tui.session.session_engine import Phase

GB = 10**9
TEXT = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen " * 2
BIG = Offer(
    "big-8b",
    "org/Big : big.gguf",
    5 * GB,
    installed=False,
    pullable=True,
    drafting="ngram",
    reads=Reads(5 * GB, 0, "Q4_K"),
)


class Quiet(Machine):
    """A machine whose engine replays rounds; plain decoding takes twice as long."""

    engine_made = None
    installed = False
    busy = False

    async def kernels(self):
        return ""

    async def calm(self):
        return not self.busy

    def neighbours(self):
        return types.SimpleNamespace(busy=self.busy)

    async def speed(self):
        return None

    async def memory(self):
        return Memory((), 64 * GB, 64 * GB)

    def engine(self, pair):
        assert pair.target.exists()
        assert pair.draft.exists()
        type(self).engine_made = made = FakeEngine(self.scripts())
        return made

    def scripts(self):
        drafted = Script(TEXT, seconds=0.02)
        return [Script(TEXT, seconds=0.04), drafted, Script(TEXT, seconds=0.04), drafted]


class Known(Quiet):
    """A machine that suits a pair."""

    async def speed(self):
        from localspec.models.memory.speed import MachineSpeed

        return MachineSpeed({k: {1: 4e-11} for k in ("Q4_0", "Q4_K")}, {})

    async def best(self, speed, memory):
        offer = dataclasses.replace(BIG, installed=self.installed)
        return Best(offer, Expected(5.2, 8.4))


@pytest.fixture
def machine(monkeypatch):
    """Uses a machine in all races; small pairs are grown."""

    def use(kind):
        monkeypatch.setattr(module, "Machine", kind)
        monkeypatch.setattr(module, "target_bytes", lambda *_: 60_000_000)
        return kind

    return use


@pytest.fixture
def race(chat, machine):
    """Opens the app and races on a machine: ``async with race(Known, size=(80, 24)) as c``."""

    @contextlib.asynccontextmanager
    async def start(kind, **more):
        machine(kind)
        async with chat(**more) as c:
            await c.pilot.press("f3")
            yield c

    return start


def flat(c):
    """The text on the screen, without its line breaks."""
    return " ".join(c.screen_text.split())


class Held(Quiet):
    """Stands still after the first token."""

    def scripts(self):
        return [Script(TEXT, hold_at=1)]


def leftovers():
    return list((paths.cache_dir() / "race").glob("pair-*"))


async def test_f3_in_an_empty_chat_races_and_says_that_the_texts_are_identical(chat, machine):
    machine(Known)
    async with chat(size=(80, 24)) as c:
        await c.sees("F3 shows in half a minute")
        await c.pilot.press("f3")
        await c.sees("identical: all")
        await c.sees("with drafting it is 2.0× as fast")
        await c.sees("big-8b")
        await c.sees("Use it")
        assert "The best model for this machine is big-8b (5.0 GB, fits)" in flat(c)
        assert "about 5 tokens/s plain and 8 with drafting" in flat(c)
        assert not leftovers()
        await c.pilot.press("escape")
        await c.sees("Everything runs on this machine")


class FirstStart(Quiet):
    """Compiles kernels before it loads."""

    def engine(self, pair):
        made = super().engine(pair)
        made.loading = Loading("compiling kernels, once", None)
        made.loaded.clear()
        return made


async def test_the_race_says_what_the_first_start_does_before_it_loads(race):
    async with race(FirstStart) as c:
        await c.sees("compiling kernels, once")
        FirstStart.engine_made.loaded.set()
        await c.sees("identical: all")


async def test_typing_leaves_the_race_and_reaches_the_composer(race):
    async with race(Held) as c:
        await c.sees("1 of 2: plain decoding")
        await c.pilot.press("h", "i")
        await c.until(lambda: c.composer.text == "hi")
        await c.until(lambda: Held.engine_made.closed)
        assert not leftovers()


async def test_keys_that_come_in_faster_than_the_race_closes_reach_the_composer(race):
    """On a busy machine several wait for the screen before it handles the first one."""

    async with race(Held) as c:
        await c.sees("1 of 2: plain decoding")
        race = c.app.screen
        for key in ("h", "i", "space", "t"):
            race.post_message(events.Key(key, " " if key == "space" else key))
        race.post_message(events.Paste("here"))
        for key in ("backspace", "a"):
            race.post_message(events.Key(key, key if key == "a" else None))
        await c.until(lambda: c.composer.text == "hi thera")
        assert len(c.app.screen_stack) == 1


async def test_a_large_paste_over_the_race_is_folded_as_any_other(race):
    async with race(Held) as c:
        await c.sees("1 of 2: plain decoding")
        race = c.app.screen
        race.post_message(events.Paste("x\r\n" * 20))
        for key in "hi":
            race.post_message(events.Key(key, key))
        await c.until(lambda: c.composer.text == "[pasted text 1, 20 lines]hi")


async def test_a_race_beside_a_loaded_pair_names_the_best_one_that_may_take_its_place(monkeypatch):
    asked = []
    monkeypatch.setattr(module, "best", lambda _found, _speed, memory: asked.append(memory))
    memory = Memory((Gpu("CUDA0", "card", 2 * GB, 24 * GB),), 8 * GB, 16 * GB)
    loaded = dataclasses.replace(INFO, backend="cuda", target_bytes=18 * GB)
    await Machine(loaded).best(None, memory)
    await Machine().best(None, memory)
    assert [found.gpus[0].free // GB for found in asked] == [20, 2]


async def test_a_screen_that_is_closed_twice_closes_no_other(race):
    async with race(Known) as c:
        await c.sees("identical: all")
        race = c.app.screen
        for _ in range(3):
            race.call_later(race.action_leave)
        await c.sees("Everything runs on this machine")
        assert len(c.app.screen_stack) == 1


async def test_no_narrow_terminal_ends_a_race(race):
    async with race(Held) as c:
        await c.sees("one")
        await go_through_narrow_sizes(c.pilot)
    async with race(Known) as c:
        await c.sees("big-8b")
        await go_through_narrow_sizes(c.pilot)
        assert c.app.defect is None


async def test_enter_after_the_race_pulls_the_best_pair(chat, machine, monkeypatch):
    machine(Known)
    async with chat() as c:
        pulled = []
        pulls = c.app.screen.actions.pulls
        monkeypatch.setattr(pulls, "pull", pulled.append)
        await c.pilot.press("f3")
        await c.sees("identical: all")
        await c.sees("big-8b")
        await c.sees("Use it")
        await c.pilot.press("enter")
        await c.until(lambda: pulled == ["big-8b"])


async def test_enter_before_the_race_is_over_does_nothing(race):
    class Held(Known):
        def scripts(self):
            return [Script(TEXT, hold_at=1)]

    async with race(Held) as c:
        await c.sees("1 of 2: plain decoding")
        await c.pilot.press("enter")
        await c.pilot.pause()
        assert "1 of 2: plain decoding" in c.screen_text


async def test_where_drafting_does_not_pay_the_race_says_why(race):
    class Slow(Quiet):
        def scripts(self):
            drafted = Script(
                TEXT, seconds=0.2, speculation=Speculation("parked", "checking costs too much")
            )
            return [Script(TEXT, seconds=0.04), drafted, Script(TEXT, seconds=0.04), drafted]

    async with race(Slow) as c:
        await c.sees("drafting is slower here")
        await c.until(lambda: "Why: checking costs too much" in flat(c))


def losing():
    """Drafting takes longer than plain decoding."""
    drafted = Script(TEXT, seconds=0.08, speculation=Speculation("parked", "too little is known"))
    return [Script(TEXT, seconds=0.04), drafted, Script(TEXT, seconds=0.04), drafted]


async def test_beside_busy_programs_the_race_is_short_and_shows_no_loss(race):
    class Busy(Known):
        busy = True

        def scripts(self):
            return losing()

    async with race(Busy, size=(80, 24)) as c:
        await c.sees("identical: all")
        await c.until(lambda: "too busy just now to compare speeds; F3 tries again" in flat(c))
        assert "slower" not in flat(c)
        assert "Why:" not in flat(c)
        assert "tokens/s │" not in flat(c)
        assert len(Busy.engine_made.scripts) == 2  # of four


async def test_speeds_are_measured_anew_where_others_were_busy_for_a_while(race):
    class Passing(Quiet):
        looks = 0

        async def calm(self):
            type(self).looks += 1
            return self.looks > 2

        def neighbours(self):
            return types.SimpleNamespace(busy=self.looks < 3)

        def scripts(self):
            return [*losing()[:2], *super().scripts()]

    async with race(Passing) as c:
        await c.sees("with drafting it is 2.0× as fast")
        assert not Passing.engine_made.scripts


async def test_what_was_timed_counts_and_not_the_moment_before(race):
    class Restless(Quiet):
        async def calm(self):
            return False

    async with race(Restless) as c:
        await c.sees("with drafting it is 2.0× as fast")


async def test_a_race_waits_for_a_calm_moment(race):
    class Later(Quiet):
        calm_now = asyncio.Event()

        async def calm(self):
            return await self.calm_now.wait()

    async with race(Later) as c:
        await c.sees("waiting for other programs, which are busy")
        Later.calm_now.set()
        await c.sees("with drafting it is 2.0× as fast")


async def test_equal_runs_that_differ_are_one_plain_sentence_and_no_loss(race):
    class Noisy(Quiet):
        def scripts(self):
            slow, slower = Script(TEXT, seconds=0.08), Script(TEXT, seconds=0.16)
            return [Script(TEXT, seconds=0.04), slow, Script(TEXT, seconds=0.04), slower]

    async with race(Noisy) as c:
        await c.until(
            lambda: (
                "equal runs differ too much just now to compare speeds; F3 tries again" in flat(c)
            )
        )
        assert "%" not in flat(c)
        assert "tokens/s" not in flat(c)


async def test_a_gain_that_any_two_runs_have_is_said_however_equal_runs_differ(race):
    class Uneven(Quiet):
        def scripts(self):
            seconds = (0.12, 0.02, 0.09, 0.025)
            return [Script(TEXT, seconds=s) for s in seconds]

    async with race(Uneven) as c:
        await c.sees("with drafting it is at least 3.6× as fast")


async def test_f3_after_a_race_races_again(race):
    class Busy(Quiet):
        busy = True

    async with race(Busy) as c:
        await c.sees("F3 tries again")
        Busy.busy = False
        await c.pilot.press("f3")
        await c.sees("with drafting it is 2.0× as fast")


async def test_on_a_small_screen_answer_speeds_result_and_the_best_model_are_readable(race):
    async with race(Known, size=(40, 12)) as c:
        await c.until(lambda: "with drafting it is 2.0× as fast" in flat(c))
        await c.until(lambda: "Best here: big-8b, about 5 tokens/s plain and 8" in flat(c))
        for words in ("decoding 65.9 tokens/s", "drafting 131.8 tokens/s", "eleven", "Use it"):
            assert words in flat(c)


@pytest.mark.parametrize(
    "error",
    [OutOfMemoryError("no room"), LocalspecError("disk is full"), OSError("no disk")],
)
async def test_a_race_that_is_not_possible_is_one_sentence(chat, machine, monkeypatch, error):
    machine(Quiet)

    def fail(*_):
        raise error

    monkeypatch.setattr(module, "target_bytes", fail)
    async with chat() as c:
        await c.pilot.press("f3")
        await c.sees(f"the race was not possible: {error}")
        await c.pilot.press("escape")
        await c.ready()


async def test_texts_that_differ_are_reported(race):
    class Odd(Quiet):
        def scripts(self):
            plain, other = Script(TEXT), Script("one two three and then something else " * 5)
            return [plain, other, plain, other]

    async with race(Odd) as c:
        await c.sees("tokens are the same; `localspec verify` says why")


async def test_demo_begins_with_the_race(chat, machine):
    machine(Quiet)
    async with chat(race=True) as c:
        await c.sees("Race")
        await c.sees("identical: all")
        assert c.session.engine.phase is Phase.READY


async def test_after_a_race_it_says_what_the_kernels_gain(race):
    class Gaining(Quiet):
        async def kernels(self):
            return "A pass over four tokens is 2.5× as fast here."

    async with race(Gaining, size=(120, 35)) as c:
        await c.until(lambda: "A pass over four tokens is 2.5× as fast here." in flat(c))
