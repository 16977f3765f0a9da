"""From ``user/repo[:QUANT]`` to files: pure functions of names and file listings.

A repository holds one model in many quantizations, in one file or in shards, beside files that are
no models. llama.cpp and Ollama take the first name that contains the wish; here a wish must be what
a file is, and what could be meant in two ways is refused with the list of what exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.errors import ModelFileError, ModelNotFoundError, UsageError
from localspec.models.hub.links import HubRef

_SHARD = re.compile(r"^(?P<prefix>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})$")
_QUANT = re.compile(
    r"(?:^|[-._])((?:UD[-_])?(?:(?:I|T)?Q\d+(?:_[A-Z0-9]+)*|MXFP\d+(?:_[A-Z]+)?|NVFP\d+"
    r"|BF16|FP?16|FP?32))(?=$|[-._])",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"mmproj|imatrix|^(?:mtp|eagle3|medusa|dflash|dspark)-", re.IGNORECASE)
PREFERENCE = (
    *("Q4_K_M", "UD-Q4_K_XL", "Q4_K_L", "UD-Q4_K_M", "Q4_K_S", "IQ4_XS", "IQ4_NL", "Q4_1", "Q4_0"),
    *("MXFP4", "MXFP4_MOE", "Q5_K_M", "UD-Q5_K_XL", "Q5_K_S", "Q5_1", "Q5_0", "Q6_K", "Q8_0"),
    *("Q3_K_L", "Q3_K_M", "Q3_K_S", "BF16", "F16", "F32"),
)
"""Where no quantization is asked for: four bits, then what is nearest above, then below."""
_SMALL_PREFERENCE = ("Q8_0", *PREFERENCE)
_SMALL = 1_200_000_000
"""Bytes; drafts below that lose more acceptance in four bits than they gain speed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a repository."""

    path: str
    size: int
    sha256: str | None = None
    """Of a large file (LFS); None for a small one."""
    oid: str = ""
    """Git's name for the content of a small file."""

    @property
    def etag(self) -> str:
        """What the Hub and the cache call its content."""
        return self.sha256 or self.oid


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model of a repository: a file, or all its shards in order."""

    prefix: str
    """Path without shard number and suffix."""
    entries: tuple[Entry, ...]
    count: int
    """Shards that there must be."""

    @property
    def first(self) -> Entry:
        """The file to load; a model's vocabulary is in it."""
        return self.entries[0]

    @property
    def n_bytes(self) -> int:
        """Of all its files."""
        return sum(entry.size for entry in self.entries)

    @property
    def label(self) -> str | None:
        """Its quantization, as UD-Q4_K_XL; of the folder if the name has none."""
        *folders, stem = self.prefix.split("/")
        for text in (stem, *reversed(folders)):
            if found := _QUANT.findall(text):
                return _canonical(found[-1])
        return None


def shard_names(path: str) -> tuple[str, ...]:
    """All files of the model that ``path`` is one of; itself alone if it is no shard."""
    shard = _SHARD.match(path.removesuffix(".gguf"))
    if shard is None:
        return (path,)
    count = int(shard["count"])
    return tuple(f"{shard['prefix']}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1))


def candidates(entries: Iterable[Entry], wanted: HubRef) -> list[Candidate]:
    """The models among files, shards grouped.

    What a name marks as no model is left out, unless that very file is asked for.
    """
    by_name = (wanted.tag or "").lower().endswith(".gguf")
    groups: dict[tuple[str, int], dict[int, Entry]] = {}
    for entry in sorted(entries, key=lambda e: e.path):
        base = entry.path.rsplit("/", 1)[-1]
        if not base.lower().endswith(".gguf") or (_NO_MODEL.search(base) and not by_name):
            continue
        stem = entry.path[: -len(".gguf")]
        shard = _SHARD.match(stem)
        key = (shard["prefix"], int(shard["count"])) if shard else (stem, 1)
        groups.setdefault(key, {})[int(shard["index"]) if shard else 1] = entry
    return [
        Candidate(prefix, tuple(parts[i] for i in sorted(parts)), count)
        for (prefix, count), parts in groups.items()
    ]


def choose(wanted: HubRef, found: Sequence[Candidate], *, small: bool = False) -> Candidate:
    """The one model that is meant; ``small`` prefers eight bits for a small draft.

    Raises:
        ModelNotFoundError: nothing is that; the message lists what exists.
        UsageError: several are; the message lists them.
        ModelFileError: a shard of it is missing in the repository.
    """
    if not found:
        raise ModelNotFoundError(f"{wanted.repo} holds no GGUF model; look for a -GGUF repository")
    if wanted.tag is None:
        matching = _by_preference(found, small=small)
    elif wanted.tag.endswith("/"):
        inside = [c for c in found if f"{c.prefix}/".lower().startswith(wanted.tag.lower())]
        matching = _by_preference(inside, small=small)
    else:
        matching = _whole_first([c for c in found if _is_meant(c, wanted.tag)])
    if not matching:
        raise ModelNotFoundError(f"{wanted.repo} has no {wanted.tag}; there are {listing(found)}")
    if len(matching) > 1:
        asked = "several models" if wanted.tag is None else f"several files for {wanted.tag}"
        raise UsageError(
            f"{wanted.repo} has {asked}; name one: "
            + ", ".join(f"{wanted.repo}:{c.first.path}" for c in matching)
        )
    (chosen,) = matching
    if len(chosen.entries) != chosen.count:
        raise ModelFileError(
            f"{wanted.repo} holds {len(chosen.entries)} of the {chosen.count} parts of "
            f"{chosen.prefix}; choose another quantization: {listing(found)}"
        )
    return chosen


def listing(found: Iterable[Candidate]) -> str:
    """What exists, with sizes, smallest first, in one line."""
    ordered = sorted(found, key=lambda c: (c.n_bytes, c.prefix))
    return ", ".join(f"{c.label or c.first.path} ({_size(c.n_bytes)})" for c in ordered)


def _size(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 10**8 else f"{n / 1e6:.1f} MB"


def _canonical(label: str) -> str:
    return label.upper().replace("UD_", "UD-").replace("FP16", "F16").replace("FP32", "F32")


def _is_meant(candidate: Candidate, tag: str) -> bool:
    """Whether a tag is this file's name, its quantization, or the end of its name.

    The end is anchored on the left: Q4_K_M is not UD-Q4_K_M, and F16 not BF16.
    """
    wish = tag.lower()
    if wish.endswith(".gguf"):
        paths = {path for e in candidate.entries for path in (e.path, e.path.rsplit("/", 1)[-1])}
        return wish in {path.lower() for path in paths}
    label = candidate.label
    if label is not None and _canonical(tag) == label:
        return True
    base = candidate.prefix.rsplit("/", 1)[-1].lower()
    if wish == base:
        return True
    if label is not None and label.lower().endswith(wish):
        return False  # a part of the quantization is not the quantization
    return base.endswith(wish) and base[-len(wish) - 1] in "-._"


def _by_preference(found: Sequence[Candidate], *, small: bool) -> list[Candidate]:
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


def _whole_first(found: Sequence[Candidate]) -> list[Candidate]:
    """Without shards of a model that is also there in one file, and without doubled shard sets."""
    best: dict[str, Candidate] = {}
    for c in found:
        base = c.prefix.rsplit("/", 1)[-1]
        known = best.get(base)
        if known is None or (c.count, c.prefix) < (known.count, known.prefix):
            best[base] = c
    return list(best.values())


__all__ = ["PREFERENCE", "Candidate", "Entry", "candidates", "choose"]
__all__ += ["listing", "shard_names"]
