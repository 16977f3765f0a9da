"""Exactness on small real models, one for every kind of memory: conversations with interrupts,
stops, edits, other replies to the same question, and states from disk, against plain decoding.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gguf_tools
import memory_files

from faults.conversations import (
    USUAL,
    Answer,
    Aside,
    Step,
    answers,
    any_sampling,
    any_step,
    difference,
    request,
)
from faults.oracle import Oracle
from faults.runner import Search
from faults.settings import Chance, simpler
from localspec import Message, Options, ReplyRequest, Runtime
from localspec.core.adapter_list import read
from localspec.core.interrupt import Interrupt
from localspec.core.logits import Sampling
from localspec.drafters.cascade import Cascade
from localspec.loading import loader
from localspec.loading.policy import Control
from localspec.prefix_cache import cache, search
from localspec.prefix_cache.files import KvStore

_DRAFTERS = {
    "full": ("model", "tree", "suffix", "ngram", "lookahead", "tree,suffix", "suffix,model"),
    "latent": ("model", "tree", "suffix", "lookahead"),
    "sliding": ("model", "suffix"),
    "chunked": ("suffix", "model"),
    "recurrent": ("suffix", "model", "ngram"),
    "hybrid": ("suffix", "model", "mtp"),
}
_ORACLE = "oracle"
_ALONE = (_ORACLE, "tree", "tree,suffix", "lookahead")
"""What drafts for one request, or branches."""
_NODES, _LEAVES = 62, 9


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
    beside: int
    """Requests that are asked beside each of the conversation."""
    cache_memory: int
    steps: tuple[Step, ...]


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
        drafter = rng.choice((_ORACLE, rng.choice(_DRAFTERS[memory])))
        alone = drafter in _ALONE or rng.random() < 0.5
        beside = 0 if alone else rng.choice([1, 2])
        long = memory == "chunked" and alone and rng.random() < 0.05
        adapters = memory == "full"
        return Case(
            seed,
            memory,
            drafter,
            rng.choice([1, 3, 8, 20, _NODES]),
            rng.choice([1, 3, _LEAVES]),
            any_sampling(rng),
            rng.random() < 0.4,
            beside,
            rng.choice([1, 50]),
            tuple(
                any_step(rng, first=not i, long=long, adapters=adapters, beside=beside)
                for i in range(rng.randint(1, 5))
            ),
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
            for name, value in (
                ("interrupt", None),
                ("extras", USUAL),
                ("asides", ()),
                ("words", 1),
            ):
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

    def adapters(self) -> list[str]:
        """Two adapters of the model with full memory."""
        for seed, name in enumerate(("one", "two"), 1):
            if name not in self._files:
                self._files[name] = path = self._folder / f"{name}.gguf"
                gguf_tools.write_lora(path, gguf_tools.MATRICES, seed=seed, rank=2 * seed)
        return [str(self._files[name]) for name in ("one", "two")]

    def shelf(self) -> Path:
        """A folder for the states of one case."""
        return self._folder / f"states{self._cases}"


class _Conversation:
    """A drafting and a plain runtime, asked the same."""

    def __init__(self, models: Models, case: Case, closing: contextlib.ExitStack) -> None:
        self._models, self._case, self._closing = models, case, closing
        self._adapters = models.adapters() if case.memory == "full" else []
        self._rounds: int | None = None
        """Rounds before the user interrupts."""
        self._stop = Interrupt()
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
            requests = [self._asked(step), *map(self._beside, step.asides)]
            drafted = self._drafted(step, requests)
            for one, found in zip(requests, drafted, strict=True):
                if not found.reply.tokens:  # interrupted before the first token
                    continue
                if step.fresh:
                    self._plain.forget()
                plain_one = replace(one, max_tokens=len(found.reply.tokens))
                (plain,) = answers(self._plain, [plain_one])
                what = difference(self._plain, one, found, plain)
                if what is not None:
                    return f"step {number}: {what}; {one}"
                if one is requests[0] and found.reply.tokens != plain.reply.tokens:
                    return None  # after a near-tie the two conversations are different ones
            self._messages.append(Message("assistant", drafted[0].reply.text))
        return None

    def _open(self) -> None:
        case = self._case
        self._drafting = self._closing.enter_context(self._runtime(tuple(case.drafter.split(","))))
        shelf = KvStore(f"{case.memory}", self._models.shelf())
        self._drafting.keep_states(shelf)
        self._plain = self._closing.enter_context(self._runtime(("off",)))

    def _runtime(self, drafter: tuple[str, ...]) -> Runtime:
        case, off = self._case, drafter == ("off",)
        oracle = drafter == (_ORACLE,)
        if oracle:  # what it stands for needs room for branches where there can be any
            drafter = ("lookahead",) if case.memory in {"full", "latent"} else ("suffix",)
        with_model = {"model", "tree"} & {*drafter}
        long = any(step.words > 1000 for step in case.steps)
        loaded = [f"{path}:{scale}" for path, scale in zip(self._adapters, (0.3, 0), strict=False)]
        options = Options(
            model=str(self._models.file(case.memory)),
            draft=str(self._models.file("draft")) if with_model else "none",
            drafter=drafter,
            draft_max=0 if off else case.nodes,
            draft_memory=0 if off else 1,
            parallel=1 if off else 1 + case.beside,
            cache_memory=case.cache_memory,
            context=9000 if long else 512,
            threads=1,
            lora=read(loaded),
        )
        pairing = loader.load(options, None, None)
        if not off:
            policy = Chance(case.seed, case.nodes, case.leaves, self._round)
            pairing = dataclasses.replace(pairing, control=Control(policy))
        if oracle:
            pairing = dataclasses.replace(pairing, drafter=Cascade([self._oracle]))
        return Runtime(dataclasses.replace(pairing, watchdog=None))

    def _round(self, number: int) -> None:
        """Before each round of the drafting runtime."""
        if self._rounds is not None:
            self._rounds -= 1
            if self._rounds < 0:
                self._rounds = None
                self._stop.set()

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

    def _asked(self, step: Step) -> ReplyRequest:
        """The request of a step; its prediction, or what the oracle knows, is the plain reply."""
        case = self._case
        settings = (case.sampling, step.seed, step.max_tokens, step.extras)
        one = request(self._messages, *settings, ends=case.ends, adapters=self._adapters)
        if case.drafter == _ORACLE or step.extras.predicts:
            told = self._plain.answer(one)
            self._oracle.right = [*self._plain.encode(self._messages), *told.tokens]
            if step.extras.predicts:
                place = step.seed % (1 + len(told.text))
                return replace(one, prediction=f"{told.text[:place]}x{told.text[place:]}")
        return one

    def _beside(self, aside: Aside) -> ReplyRequest:
        settings = (aside.sampling, aside.seed, 20, aside.extras)
        one = request(aside.prompt, *settings, ends=self._case.ends, adapters=self._adapters)
        return replace(one, prediction=aside.prompt) if aside.extras.predicts else one

    def _drafted(self, step: Step, requests: Sequence[ReplyRequest]) -> list[Answer]:
        self._rounds, self._stop = step.interrupt, Interrupt()
        try:
            return answers(self._drafting, requests, self._stop)
        finally:
            self._rounds = None
