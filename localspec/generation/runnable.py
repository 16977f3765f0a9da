"""The interface of a loaded pair that can answer requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from localspec.core.adapter_list import Blend
from localspec.core.events import Notice
from localspec.core.interrupt import StopSignal
from localspec.core.target import ServingTarget
from localspec.decode.verifiers import Verifier
from localspec.drafters.base import Drafter
from localspec.generation.pictures import Sight
from localspec.policy import Policy


class RunnableModel(Protocol):
    """A target model, as far as requests need it."""

    @property
    def path(self) -> Path:
        """Its file."""
        ...

    @property
    def n_vocab(self) -> int:
        """Tokens of its vocabulary."""
        ...

    @property
    def n_ctx_train(self) -> int:
        """The longest context that it has learnt; 0 if unknown."""
        ...

    @property
    def template(self) -> str | None:
        """Source of the chat template; None where the file has none."""
        ...

    @property
    def special_ids(self) -> Mapping[str, int]:
        """Ids of "bos", "eos" and other special tokens."""
        ...

    @property
    def adds_bos(self) -> bool:
        """Whether a prompt begins with the beginning-of-sequence token."""
        ...

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a reply."""
        ...

    @property
    def control_texts(self) -> frozenset[str]:
        """Texts that `tokenize` takes for control tokens with ``special`` alone."""
        ...

    def marker(self, token: int) -> str:
        """Text of a control token."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""
        ...

    def tokenize(self, text: str, *, special: bool = ..., bos: bool = ...) -> list[int]:
        """Ids of a text; with ``special``, control tokens are recognised in it."""
        ...

    def grammar_vocabulary(self) -> Any:
        """An ``llguidance.LLTokenizer`` of its vocabulary."""
        ...


class Controls(Protocol):
    """The policy of a loaded pair, and where its measurements are saved."""

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
