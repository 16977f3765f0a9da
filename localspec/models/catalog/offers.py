"""What a person can choose a model from: the catalogue, the cache, and files in folders.

Nothing here needs numpy or llama.cpp, so an interface can list it in its own process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.models.catalog.catalog import catalog
from localspec.models.catalog.inventory import uncatalogued
from localspec.models.catalog.pair import NOT_STATED, HubFile, Pair
from localspec.models.hub import file_names
from localspec.models.hub.links import HubRef
from localspec.models.memory.machine import Memory

FIT_SHORT = {
    "fits on GPU": "GPU",
    "partly on GPU": "GPU+CPU",
    "CPU only": "CPU only",
    "too big": "too big",
}
"""Verdicts of `localspec.models.memory.fit`, short enough for a table of 80 columns."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that can be asked for by ``name``."""

    name: str
    target: str
    """Where the target is, for people."""
    target_bytes: int | None
    """As near as is known."""
    draft: str | None = None
    draft_bytes: int = 0
    exact: bool = True
    """Whether the sizes are known to the byte."""
    about: str = ""
    licence: str | None = None
    """None where nobody has looked into the file yet."""
    installed: bool = True
    pullable: bool = False
    """Whether the Hub has it."""
    drafting: str | None = None
    """How the catalogue drafts for it; None where it says nothing."""
    traps: tuple[str, ...] = ()

    @property
    def n_bytes(self) -> int | None:
        """Of target and draft."""
        return None if self.target_bytes is None else self.target_bytes + self.draft_bytes

    def fit(self, memory: Memory) -> str | None:
        """How it would run, in a word of `localspec.models.memory.fit`; None if not known."""
        from localspec.models.memory.fit import verdict

        if self.target_bytes is None:
            return None
        return verdict(memory, self.target_bytes, self.draft_bytes)

    def holds(self, words: Iterable[str]) -> bool:
        """Whether all words, in small letters, stand somewhere in what is known of it."""
        known = (self.name, self.about, self.target, self.draft, self.licence)
        text = " ".join(part for part in known if part).lower()
        return all(word in text for word in words)


@dataclass(frozen=True, slots=True)
class Offers:
    """All there is, and what could not be read."""

    found: tuple[Offer, ...]
    problems: tuple[str, ...] = ()
    """One line each."""


def offers(folders: Iterable[Path] = ()) -> Offers:
    """Pairs of the catalogue (those that are here first), the cache, and files in ``folders``.

    A catalogue that cannot be read is a problem, not an end: files can be chosen without it.
    """
    files = [offer for folder in dict.fromkeys(folders) for offer in in_folder(folder)]
    try:
        pairs = [_of_pair(pair) for pair in catalog().values()]
        cached = [Offer(f.name, str(f.path), f.n_bytes) for f in uncatalogued()]
    except LocalspecError as error:
        return Offers(tuple(files), (str(error),))
    pairs.sort(key=lambda offer: not offer.installed)  # stable: the catalogue's order otherwise
    here = [offer for offer in pairs if offer.installed]
    return Offers((*here, *cached, *files, *pairs[len(here) :]))


def in_folder(folder: Path) -> list[Offer]:
    """The models in a folder that are whole by their names, shards together; none if unreadable."""
    try:
        sizes = {path.name: path.stat().st_size for path in folder.glob("*.gguf")}
    except OSError:
        return []
    entries = [file_names.Entry(name, size) for name, size in sizes.items()]
    return [
        Offer(str(folder / c.first.path), str(folder / c.first.path), c.n_bytes)
        for c in file_names.candidates(entries, HubRef(str(folder)))
        if len(c.entries) == c.count
    ]


def with_back(memory: Memory, n_bytes: int) -> Memory:
    """Memory once a model that now holds so many bytes of GPUs has left them.

    Host memory needs no such care: weights there are mapped files, which count as free.
    """
    share = n_bytes // max(1, len(memory.gpus))
    gpus = tuple(replace(gpu, free=min(gpu.total, gpu.free + share)) for gpu in memory.gpus)
    return replace(memory, gpus=gpus)


def _of_pair(pair: Pair) -> Offer:
    draft = pair.draft
    return Offer(
        pair.name,
        pair.target.where,
        pair.target.size,
        draft.where if draft is not None else None,
        (draft.size or 0) if draft is not None else 0,
        pair.exact,
        pair.about,
        pair.licence if pair.licence != NOT_STATED else None,
        pair.installed,
        all(isinstance(file, HubFile) or file.found() for file in pair.files),
        pair.drafting,
        pair.traps,
    )
