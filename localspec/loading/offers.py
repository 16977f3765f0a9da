"""The models that a user can choose from: the catalogue, the cache, and files in folders.

Needs neither numpy nor llama.cpp, so that an interface can list them in its own process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.events import ModelInfo
from localspec.core.files.paths import DEMO_DIR
from localspec.core.units import size
from localspec.loading import machine_speed
from localspec.models.catalog import file_names
from localspec.models.catalog.catalog import catalog, uncatalogued
from localspec.models.catalog.links import HubRef
from localspec.models.catalog.pair import MTP_EMBEDDED, NOT_STATED, HubFile, Pair
from localspec.models.memory import ask_machine
from localspec.models.memory.machine import Memory
from localspec.models.memory.speed import (
    Expected,
    MachineSpeed,
    Reads,
    expected,
    weight_type,
)

_SMALLEST = 64 << 20
READING = 8.0
"""Tokens per second that are about as fast as most people read."""
_LAYER = 0.04
"""Share of a target that its layer for multi-token prediction reads for a drafted token, with the
output matrix."""
_USUAL = 65
"""Percent of drafted tokens accepted where the catalogue states none."""
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
    reads: Reads | None = None
    """The bytes that decoding with it reads; None if its size is unknown."""

    @property
    def embedded(self) -> bool:
        """Whether it is the toy that comes with localspec."""
        return self.target.startswith(str(DEMO_DIR))

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

    def speed(self, machine: MachineSpeed, memory: Memory) -> Expected | None:
        """Its expected speed; None if it does not fit, or its size is unknown."""
        from localspec.models.memory.fit import TOO_BIG

        if self.reads is None or self.fit(memory) == TOO_BIG:
            return None
        return expected(machine, memory, self.reads)

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
        pairs = [of_pair(pair) for pair in catalog().values()]
        cached = [
            Offer(f.name, str(f.path), f.n_bytes, reads=_alone(f.n_bytes, f.name))
            for f in uncatalogued()
        ]
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
        Offer(
            str(folder / c.first.path),
            str(folder / c.first.path),
            c.n_bytes,
            reads=_alone(c.n_bytes, c.first.path),
        )
        for c in file_names.candidates(entries, HubRef(str(folder)))
        if len(c.entries) == c.count
    ]


def with_back(memory: Memory, loaded: ModelInfo | None) -> Memory:
    """Memory after the pair that is loaded is unloaded.

    Host memory needs no correction: weights there are mapped files, which count as free.
    """
    if loaded is None or loaded.backend == "cpu":
        return memory
    n_bytes = loaded.target_bytes + loaded.draft_bytes
    share = n_bytes // max(1, len(memory.gpus))
    gpus = tuple(replace(gpu, free=min(gpu.total, gpu.free + share)) for gpu in memory.gpus)
    return replace(memory, gpus=gpus)


def of_pair(pair: Pair) -> Offer:
    """A pair of the catalogue as an offer."""
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
        reads_of(pair),
    )


def reads_of(pair: Pair) -> Reads | None:
    """The bytes that decoding with a pair reads; None if the target's size is unknown, or so
    small that other work than reading takes the time.
    """
    target, draft = pair.target.size, pair.draft
    if target is None or target < _SMALLEST:
        return None
    per_draft = (draft.size or 0) if draft is not None else 0
    if pair.drafting == MTP_EMBEDDED:
        per_draft = int(_LAYER * target)
    return Reads(
        target_bytes=target,
        draft_bytes=per_draft,
        kind=weight_type(pair.target.where),
        reads=(pair.reads or 100) / 100,
        active=(pair.active or 100) / 100,
        acceptance=(pair.acceptance or _USUAL) / 100 if per_draft else 0.0,
    )


def _alone(n_bytes: int, name: str) -> Reads | None:
    """The same of a model outside the catalogue, whose file may be empty."""
    return Reads.alone(n_bytes, name) if n_bytes >= _SMALLEST else None


@dataclass(frozen=True, slots=True)
class Best:
    """The offer that suits a machine best, and its expected speed."""

    offer: Offer
    speed: Expected

    @property
    def sentence(self) -> str:
        """The recommendation, the same wherever one is given."""
        offer = self.offer
        facts = f"{offer.name} ({size(offer.n_bytes or 0)}, fits): {self.speed.words}"
        if self.speed.at_least:
            return (
                "As far as can be told while it is busy, the best model for this machine is "
                f"{facts}."
            )
        return f"The best model for this machine is {facts}."


def best(found: Iterable[Offer], machine: MachineSpeed, memory: Memory) -> Best | None:
    """The pair of the catalogue that suits this machine best; None where none fits.

    That is the largest one that writes at least `READING` tokens per second with drafting, else the
    fastest. Of a model with experts, the geometric mean of all its weights and those that a token
    needs counts as its size. Models for code are left out.
    """
    known = [
        Best(offer, speed)
        for offer in found
        if offer.drafting is not None and (offer.pullable and not offer.embedded)
        if not offer.about.startswith("code")
        if (speed := offer.speed(machine, memory)) is not None
    ]
    fast = [one for one in known if one.speed.drafted >= READING]
    if fast:
        return max(fast, key=lambda one: one.offer.reads.size if one.offer.reads else 0.0)
    return max(known, key=lambda one: one.speed.drafted, default=None)


def recommended() -> Best | None:
    """The pair that `localspec.loading.offers.best` finds for this machine, as in F4, in
    `localspec models` and after a race; None where the machine was not measured yet, or nothing
    fits. Measures nothing itself. Blocks.
    """
    speed = machine_speed.saved()
    if speed is None:
        return None
    return best(offers().found, speed, ask_machine.memory())


def after_the_toy(target: str) -> str:
    """What is to be said after a reply that names a model to pull, where the embedded target wrote
    it; else "". The toy has learnt one name by heart, whatever machine it runs on. Blocks.
    """
    if Path(target).parent != DEMO_DIR:
        return ""
    best = recommended()
    if best is None:
        return "the demo knows the name of one model by heart; `localspec models` lists all"
    return f"the demo knows the name of one model by heart. {best.sentence}"
