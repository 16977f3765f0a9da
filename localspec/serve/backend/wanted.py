"""What a request names: a model, and adapters. It is looked up once, by name and by number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localspec.core.options import Options


@dataclass(slots=True, eq=False)
class ServedAdapter:
    """One adapter of a server."""

    id: int
    """llama-server's number of it, which no other one gets later."""
    name: str
    """By which a request may call it as a model."""
    key: str
    """The name that engines know what was loaded last by."""
    path: Path
    """Its file, as it was named."""
    file: Path
    """The same with links followed, when it was loaded."""
    scale: float
    """The scale where a request names none."""
    own: float
    """The scale of a request that calls it as a model."""
    options: Options
    """The model that it was loaded for."""
    stays: bool
    """Whether it is one of ``--lora``: no request loaded it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model and its adapters. Nothing is left to be looked up again, so nothing that happens
    while the request waits makes another one of it.
    """

    options: Options | None = None
    """Options of the model; None: whichever is present when the request's turn comes."""
    adapters: tuple[tuple[ServedAdapter, float], ...] | None = None
    """The adapters and their scales; None: the usual ones of the model that answers."""
    called: str = ""
    """The name of the adapter that the request calls as its model, if it does."""

    @classmethod
    def calling(cls, adapter: ServedAdapter) -> Wanted:
        """What a request wants that calls an adapter as its model."""
        return cls(adapter.options, ((adapter, adapter.own),), adapter.name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the adapters that the request asks for, sorted."""
        return tuple(sorted(one.name for one, scale in self.adapters or () if scale))
