"""The models that a user can choose from: the catalogue, the cache, and files in folders.

Needs neither numpy nor llama.cpp, so that an interface can list them in its own process.
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
"""Short verdicts of `localspec.models.memory.fit`, for a table of 80 columns."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that can be chosen by ``name``."""

    name: str
    target: str
    """Place of the target, as text for users."""
    target_bytes: int | None
    """Exact or approximate; None if unknown."""
    draft: str | None = None
    draft_bytes: int = 0
    exact: bool = True
    """Whether the sizes are exact."""
    about: str = ""
    licence: str | None = None
    """None where the file has not been read."""
    installed: bool = True
    pullable: bool = False
    """Whether it can be pulled from the Hub."""
    drafting: str | None = None
    """The catalogue's ``drafting``; None for a model outside it."""
    traps: tuple[str, ...] = ()

    @property
    def n_bytes(self) -> int | None:
        """Bytes of target and draft."""
        return None if self.target_bytes is None else self.target_bytes + self.draft_bytes

    def fit(self, memory: Memory) -> str | None:
        """Verdict of `localspec.models.memory.fit` for it; None if its size is unknown."""
        from localspec.models.memory.fit import verdict

        if self.target_bytes is None:
            return None
        return verdict(memory, self.target_bytes, self.draft_bytes)

    def holds(self, words: Iterable[str]) -> bool:
        """Whether all words, in lower case, occur in its texts."""
        known = (self.name, self.about, self.target, self.draft, self.licence)
        text = " ".join(part for part in known if part).lower()
        return all(word in text for word in words)


@dataclass(frozen=True, slots=True)
class Offers:
    """All models found, and problems."""

    found: tuple[Offer, ...]
    problems: tuple[str, ...] = ()
    """One line each."""


def offers(folders: Iterable[Path] = ()) -> Offers:
    """Installed pairs, models in the cache, files in ``folders``, then the other pairs.

    An unreadable catalogue is reported in ``problems``; files can be chosen without it.
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
    """The models in a folder, without those that lack shards; empty if it is unreadable."""
    try:
        sizes = {path.name: path.stat().st_size for path in folder.glob("*.gguf")}
    except OSError:
        return []
    entries = [file_names.RepoFile(name, size) for name, size in sizes.items()]
    return [
        Offer(str(folder / c.first.path), str(folder / c.first.path), c.n_bytes)
        for c in file_names.candidates(entries, HubRef(str(folder)))
        if len(c.entries) == c.count
    ]


def with_back(memory: Memory, n_bytes: int) -> Memory:
    """Memory after a model that uses ``n_bytes`` of GPU memory is unloaded.

    Host memory needs no correction: weights there are mapped files, which count as free.
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
