"""A loaded pair made of tables: what a scheduler runs, without llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from localspec.core.adapter_list import Blend
from localspec.core.events import Notice
from localspec.core.target import Work
from localspec.core.values import Scores, Tokens
from localspec.decode.verifiers import Match, Verifier
from localspec.drafters.base import Drafter, Off
from localspec.generation.pictures import Sight
from localspec.policy import Policy
from localspec.policy.simple import Plain
from localspec.testing import Table, TableTarget

V = 26
"""Tokens: the letters."""


def letters(tokens: Sequence[int]) -> str:
    """Tokens as text."""
    return "".join(chr(ord("a") + token) for token in tokens)


class Letters:
    """A model whose tokens are letters; the letter a ends a reply."""

    path = Path("letters.gguf")
    n_vocab = V
    end_ids = frozenset({0})
    special_ids: ClassVar[Mapping[str, int]] = {"bos": -1, "eos": -1}
    adds_bos = False
    n_ctx_train = 0
    control_texts: frozenset[str] = frozenset()

    def __init__(self, template: str | None = None) -> None:
        self.template = template or "{% for m in messages %}{{ m.content }}{% endfor %}"

    def piece(self, token: int) -> bytes:
        return letters([token]).encode()

    def marker(self, token: int) -> str:
        return ""

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        return [ord(c) - ord("a") for c in text]


class Flag:
    """A stop signal."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set


class Hooked(TableTarget):
    """Does something before it reads or scores, in the thread that computes."""

    def __init__(
        self,
        table: Table,
        capacity: int = 4096,
        sequences: int = 1,
        *,
        cuts_anywhere: bool = True,
    ) -> None:
        super().__init__(table, capacity=capacity, sequences=sequences, cuts_anywhere=cuts_anywhere)
        self.before_read: Callable[[], None] = lambda: None
        self.before_score: Callable[[], None] = lambda: None

    def read(self, seq: int, tokens: Tokens) -> None:
        self.before_read()
        super().read(seq, tokens)

    def score(self, work: Sequence[Work]) -> list[Scores]:
        self.before_score()
        return super().score(work)


class Device(Hooked):
    """A device computes its passes, and the processor is free meanwhile."""

    waiting: Callable[[], None] | None = None

    def idle(self) -> None:
        """Nothing waits for a pass."""

    def meanwhile(self, work: Callable[[], None]) -> None:
        self.waiting = work

    def score(self, work: Sequence[Work]) -> list[Scores]:
        self.before_score()
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting()
        return TableTarget.score(self, work)


@dataclass
class Costs:
    """Controls that save nothing, or fail to."""

    policy: Policy = field(default_factory=lambda: Plain("test"))
    error: OSError | None = None

    def policy_for(self, blend: Blend) -> Policy:
        return self.policy

    def save(self) -> None:
        if self.error is not None:
            raise self.error


class Watchdog:
    """Notes the passes."""

    def __init__(self) -> None:
        self.passes: list[tuple[int, float]] = []

    def look(self, last: tuple[int, float]) -> Iterator[Notice]:
        self.passes.append(last)
        yield from ()


@dataclass
class Pair:
    """The pair that a scheduler runs."""

    target: TableTarget
    drafter: Drafter = field(default_factory=Off)
    control: Costs = field(default_factory=Costs)
    target_model: Letters = field(default_factory=Letters)
    verifier: Verifier = field(default_factory=Match)
    stop: Flag = field(default_factory=Flag)
    watchdog: Watchdog | None = None
    sight: Sight | None = None
    cache_bytes: int = 0
    draft_memory: int = 0
