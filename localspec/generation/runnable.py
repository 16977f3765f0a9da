"""The interface of a loaded pair that can answer requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from localspec.core.adapter_list import Blend
from localspec.core.events import Notice
from localspec.core.interrupt import StopSignal
from localspec.core.target import ServingTarget
from localspec.decode.verifiers import Verifier
from localspec.drafters.base import Drafter
from localspec.generation.grammars import GrammarModel
from localspec.generation.pictures import Sight
from localspec.generation.prompt import Tokenizer
from localspec.generation.stop_condition import Pieces
from localspec.policy import Policy


class RunnableModel(Tokenizer, Pieces, GrammarModel, Protocol):
    """A target model, as far as requests need it."""

    @property
    def path(self) -> Path:
        """Its file."""
        ...

    @property
    def n_vocab(self) -> int:
        """Tokens of its vocabulary."""
        ...


class Controls(Protocol):
    """The policy of a loaded pair, and where its measurements are saved."""

    @property
    def policy(self) -> Policy:
        """Plans the drafts of every request that brings neither a policy nor adapters."""
        ...

    def policy_for(self, blend: Blend) -> Policy:
        """The one that plans for requests with these adapters, whose acceptance is their own."""
        ...

    def save(self) -> None:
        """Write the measured costs to disk, for the next session.

        Raises:
            OSError: they cannot be written.
        """
        ...


class WatchesPasses(Protocol):
    """Intervenes where passes take much longer than usual."""

    def look(self, last: tuple[int, float]) -> Iterator[Notice]:
        """Record a pass of (width, seconds)."""
        ...


class RunnablePair(Protocol):
    """The parts of a loaded pair that answer requests."""

    @property
    def target_model(self) -> RunnableModel:
        """Tokenizes prompts and ends replies."""
        ...

    @property
    def target(self) -> ServingTarget:
        """Scores drafts."""
        ...

    @property
    def sight(self) -> Sight | None:
        """How the target sees; None: it does not."""
        ...

    @property
    def cache_bytes(self) -> int:
        """Most memory for saved states of prompts that were read before."""
        ...

    @property
    def draft_memory(self) -> int:
        """Most bytes for earlier requests to draft from; 0: nothing is drafted from them."""
        ...

    @property
    def drafter(self) -> Drafter:
        """Proposes drafts."""
        ...

    @property
    def verifier(self) -> Verifier:
        """Accepts or rejects drafted tokens."""
        ...

    @property
    def control(self) -> Controls:
        """Plans drafts."""
        ...

    @property
    def stop(self) -> StopSignal:
        """Set, it aborts the running pass."""
        ...

    @property
    def watchdog(self) -> WatchesPasses | None:
        """Watches the time of passes; None: nobody does."""
        ...
