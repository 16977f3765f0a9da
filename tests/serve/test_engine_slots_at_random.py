"""Random sequences of requests, deaths, failures and unloads: whatever comes, requests get engines
of their models, and no model is loaded twice or pushed out in vain.
"""

import asyncio
import contextlib
import random
from pathlib import Path

import pytest
from fake_serving import World
from waiting import turn, until_so

from localspec.core.errors import DeviceMemoryError, EngineError, LocalspecError, OutOfMemoryError
from localspec.core.options import Options
from localspec.serve.backend import engine_times
from localspec.serve.backend.engine_slot import EngineSlot
from localspec.serve.backend.engine_times import KeepAlive

MODELS = ("fake", "other", "third", "fourth", "fifth")
REFUSALS = (LocalspecError, OutOfMemoryError, EngineError)


class Play:
    """Does one random thing after another, and checks after each."""

    def __init__(self, world, seed):
        self.world, self.slots, self.random = world, world.slots, random.Random(seed)
        self.asked = set()
        self.running = {}
        """Requests that use an engine, and what ends them."""
        self.dead = []
        """Engines of whose death nobody has been told yet."""
        self.answered = 0

    def options(self):
        return Options(model=self.random.choice(MODELS))

    async def request(self, options, keep):
        with contextlib.suppress(*REFUSALS):
            async with self.slots.use(options, keep) as engine:
                self.answered += 1
                model = engine.options.model
                assert options is None or model == options.model
                has, wanted = engine.adapters, self.slots.adapters.of(engine.options)
                assert wanted.items() <= has.items()
                assert all(file.stem == model for file in has.values())
                task, end = asyncio.current_task(), asyncio.Event()
                self.running[task] = end
                try:
                    await end.wait()
                finally:
                    del self.running[task]

    def start(self, work):
        task = asyncio.create_task(work)
        self.asked.add(task)

    def ask(self):
        options = self.options() if self.random.random() < 0.9 else None
        keep = self.random.choice([None, None, KeepAlive(0.0), KeepAlive(-1.0), KeepAlive(None)])
        self.start(self.request(options, keep))

    def end(self):
        for end in self.random.sample([*self.running.values()], len(self.running) // 2):
            end.set()

    def leave(self):
        if self.asked:
            self.random.choice([*self.asked]).cancel()

    def unload(self):
        self.slots.keep(self.options(), KeepAlive(0.0))

    def die(self):
        """An engine dies; it may take a while until that is noticed."""
        alive = [engine for engine in self.world.engines if engine.alive]
        if alive:
            engine = self.random.choice(alive)
            engine.alive = False
            self.dead.append(engine)

    def tell(self):
        while self.dead:
            engine = self.dead.pop()
            if not engine.closed:
                error = self.random.choice([EngineError, DeviceMemoryError])
                engine.die(error("the engine stopped"))

    def room(self):
        self.world.fits = self.random.random() < 0.7

    def fail(self):
        error = self.random.choice([None, None, *REFUSALS])
        self.world.load_error = None if error is None else error("no")

    def hold(self):
        """Loading or closing takes until it is held no more."""
        self.hold_no_more()
        name = self.random.choice(["loading", "closing", ""])
        if name:
            setattr(self.world, name, asyncio.Event())

    def slow(self):
        """Loading an adapter takes some turns of the loop."""
        self.world.adapter_turns = self.random.randrange(6)

    def hold_no_more(self):
        for name in ("loading", "closing"):
            held = getattr(self.world, name)
            if held is not None:
                held.set()
                setattr(self.world, name, None)

    async def adapt(self, options, file):
        with contextlib.suppress(*REFUSALS):
            async with self.slots.use(options) as engine:
                await engine.adapter(file.name, file)
                self.slots.adapters.add(options, file.name, file)

    def adapter(self):
        options = self.options()
        self.start(self.adapt(options, Path(f"{options.model}.gguf")))

    async def play(self, steps):
        moves = [self.ask] * 8 + [self.end] * 4 + [self.tell, self.hold_no_more] * 2
        moves += [self.leave, self.unload, self.die, self.room, self.fail, self.hold]
        moves += [self.adapter, self.adapter, self.slow]
        for _ in range(steps):
            self.random.choice(moves)()
            for _ in range(self.random.randrange(6)):
                await asyncio.sleep(0)
                self.check()
        await self.finish()

    def check(self):
        alive = [engine.options.model for engine in self.world.engines if engine.alive]
        assert len(set(alive)) == len(alive) <= self.slots._most, alive
        slots = self.slots._slots
        held = [one.model for s in slots for one in (s.options, s.before) if one is not None]
        assert len(set(held)) == len(held), held
        assert len(slots) <= self.slots._most
        for task in [*self.asked]:
            if task.done():
                self.asked.discard(task)
                assert task.cancelled() or task.exception() is None, task.exception()

    async def finish(self):
        """All who wait get their turn once nothing fails and nobody uses an engine for ever."""
        self.world.load_error = None
        self.hold_no_more()
        self.tell()

        def over():
            for end in self.running.values():
                end.set()
            self.check()
            return not self.asked

        await until_so(over)
        assert [*self.slots._waiting] == []
        assert [slot.users for slot in self.slots._slots] == [0] * len(self.slots._slots)
        await until_so(lambda: not any(slot._changing for slot in self.slots._slots), pause=turn)
        kept = [engine for engine in self.world.engines if engine.alive and not engine.closed]
        assert all(any(slot.holds(one) for slot in self.slots._slots) for one in kept)


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
async def test_requests_get_engines_of_their_models_whatever_comes(most, seed, monkeypatch):
    monkeypatch.setattr(engine_times, "_FIRST", 0.0)  # no pauses before a restart
    monkeypatch.setattr(engine_times, "_LONGEST_STAY", 0.01)
    world = World(models=most)
    exchange = EngineSlot.exchange

    def checked(slot, options):
        """A model leaves that nobody uses, and only where there is no better place."""
        slots = world.slots._slots
        assert not slot.users
        assert slot.stays <= 0
        if not slot.empty:
            older = slots[: slots.index(slot)]
            assert not any(one.empty for one in slots)
            assert not any(not one.users and not one.exchanging and one.stays <= 0 for one in older)
        return exchange(slot, options)

    monkeypatch.setattr(EngineSlot, "exchange", checked)
    play = Play(world, seed)
    await play.play(400)
    assert play.answered
    await world.slots.close()
    assert not any(engine.alive for engine in world.engines)
