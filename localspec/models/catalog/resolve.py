"""Finds the files that a MODEL string means. Never connects: errors name what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError, ModelNotFoundError, UsageError
from localspec.models.catalog.pair import HubFile, Pair, PairFile
from localspec.models.catalog.reference import LocalRef, ModelRef, PairRef, reference
from localspec.models.catalog.sidecars import Sidecars, find_sidecars, only_model
from localspec.models.compat import heads
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.shards import shards
from localspec.models.hub import file_names, hf_cache
from localspec.models.hub.links import HubRef

NO_DRAFT = "none"
_SHOWN = 3
"""Unused heads that a notice names at most."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The files that a MODEL string names."""

    name: str
    target: ModelFile
    draft: ModelFile | None
    notices: tuple[str, ...] = ()
    """Lines that the user should see."""


def resolve(model: str, draft: str | None) -> Resolved:
    """Find the files of ``model``; ``draft`` overrides its draft, "none" leaves it out.

    Raises:
        UsageError: an empty name, or one that matches several files here.
        ModelNotFoundError: no such name or file, or not on this machine; the message says how to
            get it.
    """
    ref = reference(model)
    target = _file_of(ref)
    if draft is not None:
        return Resolved(model, target, None if draft == NO_DRAFT else draft_file(draft))
    if not isinstance(ref, PairRef):
        return _with_sidecar(model, target)
    own = ref.pair.draft
    return Resolved(model, target, None if own is None else _in_cache(ref.pair, own))


def draft_file(name: str) -> ModelFile:
    """The file of a draft. A pair named as a draft means its smaller model.

    Raises:
        UsageError, ModelNotFoundError: see `resolve`.
    """
    ref = reference(name)
    if isinstance(ref, PairRef):
        return _in_cache(ref.pair, ref.pair.draft or ref.pair.target)
    return _file_of(ref, small=True)


def _file_of(ref: ModelRef, *, small: bool = False) -> ModelFile:
    """The model that a reference names; ``small`` prefers eight bits for a small draft."""
    match ref:
        case PairRef(pair):
            return _in_cache(pair, pair.target)
        case LocalRef(path) if path.is_dir():
            return only_model(path) or ModelFile(path)
        case LocalRef(path) if path.exists():
            return ModelFile(shards(path)[0])  # a split model is opened by its first file
        case LocalRef(path):  # opening it says that it is missing
            return ModelFile(path)
        case HubRef():
            found = cached(ref, small=small)
            if found is None:
                raise ModelNotFoundError(
                    f"{ref} is not on this machine; run `localspec pull {ref}`"
                )
            return ModelFile(found)


def _with_sidecar(name: str, target: ModelFile) -> Resolved:
    """A model and, where it carries no head, the best head in its folder."""
    try:
        kind = heads.kind(target.header)
        needs_one = kind == heads.MODEL and not heads.carries_mtp(target.header)
        found = find_sidecars(target) if needs_one else Sidecars()
    except LocalspecError:  # loading the target reports it better
        found = Sidecars()
    if not found.fitting:
        return Resolved(name, target, None, found.refused)
    best, *others = (file.name for file in found.fitting)
    shown = ", ".join(others[:_SHOWN]) + f" and {len(others) - _SHOWN} more" * (
        len(others) > _SHOWN
    )
    notice = f"of the heads next to {target.name}, {best} drafts, not {shown}"
    notices = (f"{notice}; --draft FILE takes another",) if others else ()
    return Resolved(name, target, found.fitting[0], notices)


def cached(ref: HubRef, *, small: bool = False) -> Path | None:
    """A model of the Hub in the cache; None if it is not there.

    Raises:
        UsageError: the reference matches several files there.
    """
    for snapshot, found in hf_cache.models(ref):
        try:
            return snapshot / file_names.choose(ref, found, small=small).first.path
        except UsageError:
            raise
        except LocalspecError:  # not in this snapshot, or not all of its shards
            continue
    return None


def _in_cache(pair: Pair, file: PairFile) -> ModelFile:
    path = file.found()
    if path is not None:
        return ModelFile(path)
    if isinstance(file, HubFile):
        raise ModelNotFoundError(
            f"{file.file} of {pair.name!r} is not on this machine; run `localspec pull {pair.name}`"
        )
    raise ModelNotFoundError(
        f"the files of {pair.name!r} are not downloaded: {file.where} is missing"
    )
