"""The race: one prompt answered by plain decoding and with drafting, in turns, by one engine.

Both answers come from the same grown pair (`localspec.demo.pair`), greedily, so their tokens must
be equal. Neither runs while the other does: on a machine with few cores each would slow the other.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from localspec.core.errors import LocalspecError
from localspec.core.events import (
    Finished,
    Loading,
    Message,
    ModelInfo,
    Reply,
    Round,
    Token,
)
from localspec.core.files import defects, paths
from localspec.core.in_thread import in_thread
from localspec.core.options import Options
from localspec.core.processes import neighbours
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import GREEDY
from localspec.core.units import size
from localspec.demo.pair import GrownPair, Growth, target_bytes
from localspec.demo.speeds import RUNS, TOKENS, Speeds
from localspec.engine.client import EngineClient
from localspec.engine.port import Engine
from localspec.loading import own_kernels
from localspec.loading.machine_speed import machine_speed_async
from localspec.loading.offers import Best, best, offers, with_back
from localspec.models.memory import ask_machine
from localspec.models.memory.machine import Memory
from localspec.models.memory.speed import MachineSpeed

PROMPT = "What can you do?"
"""A question that the toy answers well, about itself."""
_ITS_ADVICE = "For anything else"
"""Where the toy begins to name a model, the same on every machine; the sentence below the race
names the one for this machine.
"""
BUSY = "this machine is too busy just now to compare speeds"
"""The result beside other programs."""
_CONTEXT = 512
_PATIENCE_S = 8.0
"""Seconds of waiting for a calm moment, before this machine is measured and before the race."""
_PAYS = 1.05
"""Factor from which drafting counts as faster."""


class Neighbours(Protocol):
    """The part of `localspec.core.processes.neighbours.Neighbours` that a race uses."""

    @property
    def busy(self) -> bool: ...


class Machine:
    """The facts about this machine that a race uses; ``loaded`` is the pair that another one would
    take the place of.
    """

    def __init__(self, loaded: ModelInfo | None = None) -> None:
        self._loaded = loaded

    async def speed(self) -> MachineSpeed | None:
        """The speed of this machine; measured by a process of its own where it is not known."""
        return await machine_speed_async()

    async def memory(self) -> Memory:
        """The free memory."""
        return await in_thread(lambda _: ask_machine.memory())

    async def best(self, speed: MachineSpeed, memory: Memory) -> Best | None:
        """The pair of the catalogue that suits it best."""
        found = await in_thread(lambda _: offers())
        return best(found.found, speed, with_back(memory, self._loaded))

    async def kernels(self) -> str:
        """What our kernels gain here, as a sentence; "" if that is not known."""
        return await asyncio.to_thread(own_kernels.gain)

    async def calm(self) -> bool:
        """Wait for a moment in which no other program is busy, if one comes soon; whether it has
        come.
        """
        return await neighbours.calm_within(_PATIENCE_S)

    def neighbours(self) -> Neighbours:
        """What other programs use from now on."""
        return neighbours.Neighbours()

    def options(self, pair: GrownPair) -> Options:
        """How the grown pair is loaded."""
        return Options(
            model=str(pair.target),
            draft=str(pair.draft),
            context=_CONTEXT,
            remember=False,
            offline=True,
        )

    def engine(self, pair: GrownPair) -> Engine:
        """An engine for the grown pair, in a process of its own."""
        return EngineClient(self.options(pair), log_dir=paths.state_dir())


@dataclass(slots=True)
class Lane:
    """One side of the race."""

    draft: bool
    tokens: list[Token] = field(default_factory=list)
    reply: Reply | None = None
    """The whole reply, once it is there."""

    @property
    def name(self) -> str:
        """The side, as text for users."""
        return "with drafting" if self.draft else "plain decoding"

    @property
    def ids(self) -> list[int]:
        """Ids of the tokens so far."""
        return [token.token for token in self.tokens]


class Race:
    """One race. `run` makes it; an interface reads the rest while it runs."""

    def __init__(self, machine: Machine | None = None) -> None:
        self._machine = machine or Machine()
        self.plain, self.drafted = Lane(draft=False), Lane(draft=True)
        self.speeds = Speeds()
        self.running: Lane | None = None
        """The side that is being measured."""
        self.doing = "measuring this machine"
        """The step before the first token, as text for users."""
        self.n_bytes = 0
        """Bytes of the grown pair; 0 until it is made."""
        self.why_not: str | None = None
        """Why drafting was given up during the race, if it was."""
        self.shortened = False
        """Whether other programs were busy, so that the speeds say nothing."""
        self.best: Best | None = None
        """The pair of the catalogue that suits this machine best, once that is known."""
        self.kernels = ""
        """What our kernels gain here, as a sentence; empty if that is not known."""
        self.failure: LocalspecError | None = None
        self.over = False

    async def run(self) -> None:
        """Make the race. Errors are kept in `failure`; cancelled, it leaves neither files nor a
        process behind.
        """
        try:
            await self._race()
        except Exception as error:  # noqa: BLE001 - of any kind: nobody sees more than `failure`
            self.failure = defects.told(error)
        finally:
            self.running = None
            self.over = True

    async def _race(self) -> None:
        await self._wait_for_calm()
        self.doing = "measuring this machine"
        speed, memory = await self._machine.speed(), await self._machine.memory()
        if speed is not None:
            self.best = await self._machine.best(speed, memory)
        self.kernels = await self._machine.kernels()
        growth = Growth(target_bytes(speed, memory))
        self.doing = "making a large model of the small one"
        try:
            pair = await asyncio.to_thread(growth.run)
            self.n_bytes = pair.n_bytes
            engine = self._machine.engine(pair)
            try:
                await engine.open(self._loading)
                await self._turns(engine)
            finally:
                growth.remove()  # before the wait, which another cancellation may end
                await engine.close()
        finally:
            growth.remove()

    async def _wait_for_calm(self) -> bool:
        """Whether a moment came in which other programs are not busy."""
        self.doing = "waiting for other programs, which are busy"
        self.shortened = not await self._machine.calm()
        return not self.shortened

    async def _turns(self, engine: Engine) -> None:
        """Both sides twice, in turns; while other programs are busy once, for the texts, and twice
        more if they have ended then.
        """
        await self._wait_for_calm()
        await self._pair(engine)
        if self.shortened and await self._wait_for_calm():
            self.speeds, self.why_not = Speeds(), None
        while not (self.speeds.complete or self.shortened):
            await self._pair(engine)

    async def _pair(self, engine: Engine) -> None:
        """A turn of each side, and whether other programs were busy meanwhile."""
        others = self._machine.neighbours()
        for _ in (self.plain, self.drafted):
            await self._turn(engine)
        self.shortened = others.busy

    def _loading(self, loading: Loading) -> None:
        if loading.fraction is None:
            self.doing = loading.text
        elif loading.fraction < 1:
            self.doing = f"loading {size(self.n_bytes)} of weights: {loading.fraction:.0%}"
        else:
            self.doing = "measuring passes of this model"

    async def _turn(self, engine: Engine) -> None:
        """One reply; the first one of each side is the one that is shown."""
        timed = self.speeds.begin()
        lane = self.running = self.drafted if timed.draft else self.plain
        first = lane.reply is None
        request = ReplyRequest(
            messages=(Message("user", PROMPT),),
            sampling=GREEDY,
            seed=0,
            max_tokens=None if first else TOKENS,
            stop=(_ITS_ADVICE,),
            draft=timed.draft,
        )
        async for event in engine.reply(request):
            match event:
                case Token() if first:
                    lane.tokens.append(event)
                case Round():
                    timed.add(event)
                    if timed.draft and event.speculation.state != "on":
                        self.why_not = event.speculation.reason
                case Finished(reply) if first:
                    lane.reply = reply
        self.running = None

    # -- the result ----------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """The running step, or how the race ended, in one line."""
        if self.failure is not None:
            return f"the race was not possible: {self.failure}"
        if self.drafted.reply is not None and self.plain.reply is not None:
            return f"{self._same()}; {self._factor()}"
        if self.running is None:
            return f"{self.doing} …"
        turn = "1 of 2: plain decoding" if self.running is self.plain else "2 of 2: with drafting"
        return f"{turn}, {'beside busy programs' if self.shortened else 'alone on this machine'}"

    def _same(self) -> str:
        """Whether both texts are equal."""
        plain, drafted = self.plain.ids, self.drafted.ids
        if plain == drafted:
            return f"identical: all {len(plain)} tokens"
        pairs = zip(plain, drafted, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(plain), len(drafted)))
        return f"only the first {same} tokens are the same; `localspec verify` says why"

    def _factor(self) -> str:
        """How much faster drafting is, and where it is not, why."""
        if not self.over:
            if self.running is None and self.shortened:
                return f"{self.doing} …"
            return f"measuring again, run {len(self.speeds.runs)} of {RUNS}"
        if self.shortened:
            return BUSY
        if self.doubtful:
            return self.speeds.not_comparable
        verdict = self.speeds.verdict()
        if not self.pays and self.why_not:
            return f"{verdict}. Why: {self.why_not}"
        return verdict

    @property
    def doubtful(self) -> bool:
        """Whether the speeds say nothing, because of what else this machine does."""
        return self.shortened or (self.speeds.complete and self.speeds.noisy)

    @property
    def sure(self) -> bool:
        """Whether the speeds are measured to the end, and can be believed."""
        if not (self.over and self.speeds.complete) or self.doubtful:
            return False
        return not self.speeds.not_comparable

    def speed(self, *, draft: bool) -> float:
        """The speed of a side that may be shown, sure or not; 0 where none may: a loss that is only
        in doubt is none.
        """
        of = self.speeds.of
        if self.doubtful and not (self.over and of(draft=True) >= of(draft=False)):
            return 0.0
        return of(draft=draft)

    @property
    def pays(self) -> bool:
        """Whether drafting was faster."""
        factor = self.speeds.factor
        return factor is not None and factor >= _PAYS
