"""Selects the files that ``user/repo[:QUANT]`` means: pure functions of names and listings.

A repository holds one model in many quantizations, each in one file or in shards, and other files.
llama.cpp and Ollama take the first name that contains the tag; here a tag must match exactly, and
an ambiguous one is refused with a list of what exists.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.core.errors import ModelFileError, ModelNotFoundError, UsageError
from localspec.core.units import size
from localspec.models.catalog.links import HubRef
from localspec.models.gguf.shards import Shard, shard_of

_QUANT = re.compile(
    r"(?:^|[-._])((?:UD[-_])?(?:(?:I|T)?Q\d+(?:_[A-Z0-9]+)*|MXFP\d+(?:_[A-Z]+)?|NVFP\d+"
    r"|BF16|FP?16|FP?32))(?=$|[-._])",
    re.IGNORECASE,
)
_PROJECTORS = ("F16", "BF16", "Q8_0", "F32")
"""Weights of projectors, the best choice first."""
_NO_MODEL = re.compile(r"mmproj|imatrix|^(?:mtp|eagle3|medusa|dflash|dspark)-", re.IGNORECASE)
PREFERENCE = (
    *("Q4_K_M", "UD-Q4_K_XL", "Q4_K_L", "UD-Q4_K_M", "Q4_K_S", "IQ4_XS", "IQ4_NL", "Q4_1", "Q4_0"),
    *("MXFP4", "MXFP4_MOE", "Q5_K_M", "UD-Q5_K_XL", "Q5_K_S", "Q5_1", "Q5_0", "Q6_K", "Q8_0"),
    *("Q3_K_L", "Q3_K_M", "Q3_K_S", "BF16", "F16", "F32"),
)
"""Order in which a quantization is chosen by default: four bits, then more, then fewer."""
_SMALL_PREFERENCE = ("Q8_0", *PREFERENCE)
_SMALL = 1_200_000_000
"""Bytes; smaller drafts lose more by lower acceptance in four bits than they gain in speed."""
_MOST_LISTED = 40
"""Models that a message lists."""


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file of a repository."""

    path: str
    size: int
    sha256: str | None = None
    """Hash of a large file (LFS); None for a small one."""
    oid: str = ""
    """Git's blob hash of a small file."""

    @property
    def etag(self) -> str:
        """Name of the content on the Hub and in the cache."""
        return self.sha256 or self.oid


@dataclass(frozen=True, slots=True)
class RepoModel:
    """One model of a repository: a file, or all its shards in order."""

    prefix: str
    """Path without shard number and suffix."""
    entries: tuple[RepoFile, ...]
    count: int
    """Number of shards of the complete model."""

    @property
    def whole(self) -> bool:
        """Whether no shard is missing."""
        return len(self.entries) == self.count

    @property
    def first(self) -> RepoFile:
        """The file to open; it holds the vocabulary."""
        return self.entries[0]

    @property
    def n_bytes(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.entries)

    @property
    def label(self) -> str | None:
        """Quantization by the file's or the folder's name, such as UD-Q4_K_XL; None if unknown."""
        *folders, stem = self.prefix.split("/")
        found = (quantization(text) for text in (stem, *reversed(folders)))
        return next((label for label in found if label is not None), None)


def quantization(text: str) -> str | None:
    """The quantization that a name without suffix tells; None where it tells none."""
    found = _QUANT.findall(text)
    return _canonical(found[-1]) if found else None


def candidates(entries: Iterable[RepoFile], wanted: HubRef) -> list[RepoModel]:
    """The models among files, shards grouped.

    Files that are not models by their names are left out, unless one is asked for by its name.
    """
    by_name = (wanted.tag or "").lower().endswith(".gguf")
    groups: dict[tuple[str, int], dict[int, RepoFile]] = {}
    for entry in sorted(entries, key=lambda e: e.path):
        base = entry.path.rsplit("/", 1)[-1]
        if not base.lower().endswith(".gguf") or (_NO_MODEL.search(base) and not by_name):
            continue
        shard = shard_of(entry.path) or Shard(entry.path[: -len(".gguf")], 1, 1)
        groups.setdefault((shard.prefix, shard.count), {})[shard.index] = entry
    return [
        RepoModel(prefix, tuple(parts[i] for i in sorted(parts)), count)
        for (prefix, count), parts in groups.items()
    ]


def projector(entries: Iterable[RepoFile], model: str) -> RepoFile | None:
    """The projector in the folder of a model's file, by its name: with 16 bits where there is a
    choice. None without one.
    """
    folder = model.rpartition("/")[0]
    found = [
        entry
        for entry in entries
        if entry.path.rpartition("/")[0] == folder
        and entry.path.lower().endswith(".gguf")
        and "mmproj" in entry.path.rsplit("/", 1)[-1].lower()
    ]

    def order(entry: RepoFile) -> tuple[int, str]:
        labels = [_canonical(label) for label in _QUANT.findall(entry.path)]
        preferred = [_PROJECTORS.index(x) for x in labels if x in _PROJECTORS]
        return min(preferred, default=len(_PROJECTORS)), entry.path

    return min(found, key=order, default=None)


def common_prefix(one: str, other: str) -> int:
    """Characters that two names both begin with."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in pairs)


def choose(
    wanted: HubRef, found: Sequence[RepoModel], *, small: bool = False, whole: bool = True
) -> RepoModel:
    """The one model that a reference names; ``small`` prefers eight bits for a small draft, and
    without ``whole`` its shards may be missing.

    Raises:
        ModelNotFoundError: there is no such model; the message lists what exists.
        UsageError: several match; the message lists them.
        ModelFileError: a shard of the model is missing.
    """
    if not found:
        raise ModelNotFoundError(f"{wanted.repo} holds no GGUF model; look for a -GGUF repository")
    if wanted.tag is None:
        matching = _by_preference(found, small=small)
    elif wanted.tag.endswith("/"):
        inside = [c for c in found if f"{c.prefix}/".lower().startswith(wanted.tag.lower())]
        matching = _by_preference(inside, small=small)
    else:
        matching = _whole_first([c for c in found if _matches(c, wanted.tag)])
    if not matching:
        raise ModelNotFoundError(f"{wanted.repo} has no {wanted.tag}; there are {listing(found)}")
    if len(matching) > 1:
        asked = "several models" if wanted.tag is None else f"several files for {wanted.tag}"
        raise UsageError(
            f"{wanted.repo} has {asked}; name one: "
            + _listed([f"{wanted.repo}:{c.first.path}" for c in matching])
        )
    (chosen,) = matching
    if whole and not chosen.whole:
        raise ModelFileError(
            f"{wanted.repo} holds {len(chosen.entries)} of the {chosen.count} parts of "
            f"{chosen.prefix}; choose another quantization: {listing(found)}"
        )
    return chosen


def listing(found: Iterable[RepoModel]) -> str:
    """The models with their sizes, smallest first, in one line."""
    ordered = sorted(found, key=lambda c: (c.n_bytes, c.prefix))
    return _listed([f"{c.label or c.first.path} ({size(c.n_bytes)})" for c in ordered])


def _listed(texts: Sequence[str]) -> str:
    """The first of some texts, and how many more there are."""
    more = len(texts) - _MOST_LISTED
    return ", ".join(texts[:_MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _canonical(label: str) -> str:
    return label.upper().replace("UD_", "UD-").replace("FP16", "F16").replace("FP32", "F32")


def _matches(candidate: RepoModel, tag: str) -> bool:
    """Whether a tag is this model's file name, quantization, or the end of its name.

    An end must begin at a separator: Q4_K_M is not UD-Q4_K_M, and F16 is not BF16.
    """
    lowered = tag.lower()
    if lowered.endswith(".gguf"):
        paths = {path for e in candidate.entries for path in (e.path, e.path.rsplit("/", 1)[-1])}
        return lowered in {path.lower() for path in paths}
    label = candidate.label
    if label is not None and _canonical(tag) == label:
        return True
    base = candidate.prefix.rsplit("/", 1)[-1].lower()
    if lowered == base:
        return True
    if label is not None and label.lower().endswith(lowered):
        return False  # a part of the quantization is not the quantization
    return base.endswith(lowered) and base[-len(lowered) - 1] in "-._"


def _by_preference(found: Sequence[RepoModel], *, small: bool) -> list[RepoModel]:
    whole = _whole_first(found)
    if len(whole) == 1:
        return whole
    for label in _SMALL_PREFERENCE if small else PREFERENCE:
        matching = [c for c in whole if c.label == label]
        if small and label == "Q8_0":
            matching = [c for c in matching if c.n_bytes <= _SMALL]
        if matching:
            return matching
    return whole


def _whole_first(found: Sequence[RepoModel]) -> list[RepoModel]:
    """Without shards of models that also exist in one file, and without duplicate shard sets."""
    best: dict[str, RepoModel] = {}
    for c in found:
        base = c.prefix.rsplit("/", 1)[-1]
        known = best.get(base)
        if known is None or (c.count, c.prefix) < (known.count, known.prefix):
            best[base] = c
    return list(best.values())
