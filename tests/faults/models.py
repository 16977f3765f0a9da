"""Exactness on small real models, one for every kind of memory: conversations with interrupts,
stops, edits, other replies to the same question, and states from disk, against plain decoding.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import gguf_tools
import memory_files

from faults.oracle import Oracle
from faults.runner import Search
from faults.settings import Chance, sampling, simpler
from localspec import Finished, Message, Options, Reply, Runtime
from localspec.core.logits import Sampling
from localspec.core.reply_request import ReplyRequest
from localspec.drafters.cascade import Cascade
from localspec.loading import loader
from localspec.loading.policy import Control
from localspec.prefix_cache import cache, search
from localspec.prefix_cache.files import KvStore

_LETTERS = range(3 + ord("a") - ord("!"), 3 + ord("z") - ord("!") + 1)
"""Tokens of the byte vocabulary that are letters: replies of these are cut into tokens as they
were."""
_OTHERS = tuple((i, -math.inf) for i in range(259) if i not in _LETTERS and i != 2)
_ENDLESS = (*_OTHERS, (2, -math.inf))
_NEAR = 0.1
"""Logits: passes of different widths differ by up to a fifth of this on these models."""
_DRAFTERS = {
    "full": ("model", "tree", "suffix", "ngram", "lookahead", "tree,suffix", "suffix,model"),
    "latent": ("model", "tree", "suffix", "lookahead"),
    "sliding": ("model", "suffix"),
    "chunked": ("suffix", "model"),
    "recurrent": ("suffix", "model", "ngram"),
    "hybrid": ("suffix", "model", "mtp"),
}
_ORACLE = "oracle"
_NODES, _LEAVES = 62, 9
_STEPS = ("ask", "ask", "again", "edit", "resume")


@dataclass(frozen=True)
class Step:
    """One request of a conversation, after what happens before it."""

    kind: str
    """ask: the next question; again: the same once more; edit: an earlier question changed; resume:
    both programs are started anew, with states from disk, before the next question."""
    words: int
    """Words of the question."""
    seed: int
    max_tokens: int
    interrupt: int | None
    """Round before whose pass the user interrupts."""
    stop: str | None


@dataclass(frozen=True)
class Case:
    """A conversation."""

    seed: int
    memory: str
    drafter: str
    nodes: int
    leaves: int
    sampling: Sampling
    """Besides, letters alone may be emitted,"""
    ends: bool
    """and what ends a reply, or not even that."""
    steps: tuple[Step, ...]

    @property
    def letters(self) -> Sampling:
        """The sampling of all its replies."""
        forbidden = _OTHERS if self.ends else _ENDLESS
        return replace(self.sampling, logit_bias=(*forbidden, *self.sampling.logit_bias))


class Models(Search):
    """Every drafted reply is the plain one, or leaves it at a near-tie."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "models"
        self._folder.mkdir()
        self._files: dict[str, Path] = {}
        self._cases = 0
        cache.WORTH_SECONDS = 0.0  # states of small models are worth nothing
        search.Moving.seconds = lambda *_: 0.0  # type: ignore[method-assign]

    def case(self, seed: int) -> Case:
        rng = random.Random(seed)
        memory = rng.choice([*memory_files.KINDS])
        letters = sampling(rng, _LETTERS)
        long = memory == "chunked" and rng.random() < 0.05
        return Case(
            seed,
            memory,
            rng.choice((_ORACLE, rng.choice(_DRAFTERS[memory]))),
            rng.choice([1, 3, 8, 20, _NODES]),
            rng.choice([1, 3, _LEAVES]),
            letters,
            rng.random() < 0.4,
            tuple(_step(rng, first=not i, long=long) for i in range(rng.randint(1, 5))),
        )

    def wrong(self, case: Case) -> str | None:
        self._cases += 1
        with contextlib.ExitStack() as closing:
            return _Conversation(self, case, closing).wrong()

    def smaller(self, case: Case) -> Iterator[Case]:
        for i in range(len(case.steps)):
            rest = (*case.steps[:i], *case.steps[i + 1 :])
            if rest:
                yield replace(case, steps=(replace(rest[0], kind="ask"), *rest[1:]))
        for i, step in enumerate(case.steps):
            for name, value in (("interrupt", None), ("stop", None), ("words", 1)):
                if getattr(step, name) != value:
                    less = replace(step, **{name: value})
                    yield replace(case, steps=(*case.steps[:i], less, *case.steps[i + 1 :]))
        for s in simpler(case.sampling):
            yield replace(case, sampling=s)
        if case.leaves > 1:
            yield replace(case, leaves=1)

    def file(self, name: str) -> Path:
        """The model of that kind of memory, written once."""
        if name not in self._files:
            path = self._folder / f"{name}.gguf"
            draft = name == "draft"
            self._files[name] = (
                gguf_tools.write_llama(path, layers=1, seed=3, context=16_384)
                if draft
                else memory_files.KINDS[name](path)
            )
        return self._files[name]

    def shelf(self) -> Path:
        """A folder for the states of one case."""
        return self._folder / f"states{self._cases}"


class _Conversation:
    """A drafting and a plain runtime, asked the same."""

    def __init__(self, models: Models, case: Case, closing: contextlib.ExitStack) -> None:
        self._models, self._case, self._closing = models, case, closing
        self._interrupt: int | None = None
        self._messages: list[Message] = []
        self._oracle = Oracle(case.seed)
        self._open()

    def wrong(self) -> str | None:
        """The fault, or None."""
        for number, step in enumerate(self._case.steps):
            if step.kind == "resume" and number:
                self._drafting.rest()
                self._drafting.close()
                self._plain.close()
                self._open()
            self._say(step)
            if self._drafting.encode(self._messages) != self._plain.encode(self._messages):
                return None  # one of them remembers how a text was cut into tokens, the other not
            if self._case.drafter == _ORACLE:
                told = self._reply(self._plain, step, step.max_tokens).tokens
                self._oracle.right = [*self._plain.encode(self._messages), *told]
            drafted = self._drafted(step)
            plain = self._reply(self._plain, step, len(drafted.tokens))
            what = self._compared(step, drafted, plain)
            if what is not None:
                return f"step {number}: {what}"
            if drafted.tokens != plain.tokens:
                return None  # after a near-tie the two conversations are different ones
            self._messages.append(Message("assistant", drafted.text))
        return None

    def _open(self) -> None:
        case = self._case
        self._drafting = self._closing.enter_context(self._runtime(tuple(case.drafter.split(","))))
        shelf = KvStore(f"{case.memory}", self._models.shelf())
        self._drafting.keep_states(shelf)
        self._plain = self._closing.enter_context(self._runtime(("off",)))

    def _runtime(self, drafter: tuple[str, ...]) -> Runtime:
        case = self._case
        oracle = drafter == (_ORACLE,)
        if oracle:  # what it stands for needs room for branches where there can be any
            drafter = ("lookahead",) if case.memory in {"full", "latent"} else ("suffix",)
        with_model = {"model", "tree"} & {*drafter}
        long = any(step.words > 1000 for step in case.steps)
        options = Options(
            model=str(self._models.file(case.memory)),
            draft=str(self._models.file("draft")) if with_model else "none",
            drafter=drafter,
            draft_max=0 if drafter == ("off",) else case.nodes,
            context=9000 if long else 512,
            threads=1,
        )
        pairing = loader.load(options, None, None)
        if drafter != ("off",):
            policy = Chance(case.seed, case.nodes, case.leaves, self._round)
            pairing = dataclasses.replace(pairing, control=Control(policy))
        if oracle:
            pairing = dataclasses.replace(pairing, drafter=Cascade([self._oracle]))
        return Runtime(dataclasses.replace(pairing, watchdog=None))

    def _round(self, number: int) -> None:
        """Before each round of the drafting runtime."""
        if self._interrupt is not None:
            self._interrupt -= 1
            if self._interrupt < 0:
                self._interrupt = None
                self._drafting.interrupt()

    def _say(self, step: Step) -> None:
        rng = random.Random(step.seed)
        words = "".join(rng.choice("abcdefgh ") for _ in range(5 * step.words))
        asked = Message("user", f"{words}.")
        if step.kind == "again" and len(self._messages) >= 2:
            self._messages = self._messages[:-1]
        elif step.kind == "edit" and len(self._messages) >= 2:
            at = 2 * rng.randrange(len(self._messages) // 2)
            changed = self._messages[at].content[: rng.randint(0, 12)]
            self._messages = [*self._messages[:at], Message("user", f"{changed}{words[:9]}")]
        else:
            self._messages.append(asked)

    def _drafted(self, step: Step) -> Reply:
        self._interrupt = step.interrupt
        try:
            return self._reply(self._drafting, step, step.max_tokens)
        finally:
            self._interrupt = None

    def _reply(self, runtime: Runtime, step: Step, max_tokens: int) -> Reply:
        *_, end = runtime.reply(
            self._messages,
            sampling=self._case.letters,
            seed=step.seed,
            max_tokens=max(1, max_tokens),
            stop=(step.stop,) if step.stop else (),
        )
        assert isinstance(end, Finished)
        return end.reply

    def _compared(self, step: Step, drafted: Reply, plain: Reply) -> str | None:
        if not drafted.tokens:  # interrupted before the first token
            return None
        pairs = enumerate(zip(drafted.tokens, plain.tokens, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), None)
        if at is None:
            if len(drafted.tokens) != len(plain.tokens):
                return f"{len(plain.tokens)} tokens plain, {len(drafted.tokens)} drafted"
            return None
        request = ReplyRequest(tuple(self._messages), sampling=self._case.letters, seed=step.seed)
        gap = self._plain.examine(request, plain.tokens[: at + 1], drafted.tokens[at]).gap
        assert gap is not None
        if gap <= _NEAR:
            return None
        return f"token {at} is {drafted.tokens[at]}, plain {plain.tokens[at]}: {gap:.2g} apart"


def _step(rng: random.Random, *, first: bool, long: bool) -> Step:
    stopped = rng.random() < 0.3
    return Step(
        "ask" if first else rng.choice(_STEPS),
        1645 if first and long else rng.choice([1, 3, 8, 15]),
        rng.randrange(1 << 32),
        rng.choice([1, 5, 20, 60]),
        rng.randrange(12) if stopped else None,
        rng.choice([None, None, None, "e", "ab"]),
    )
