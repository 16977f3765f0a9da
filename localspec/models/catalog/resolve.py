"""From what the person typed to files on disk. Never a connection: what is missing is named."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from localspec.config import paths
from localspec.errors import LocalspecError, ModelNotFoundError, UsageError
from localspec.models.catalog.catalog import catalog
from localspec.models.catalog.pair import HubFile, Pair, PairFile
from localspec.models.catalog.sidecars import Beside, heads_beside, only_model
from localspec.models.compat import heads
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.shards import shards
from localspec.models.hub import file_names, hf_cache

NO_DRAFT = "none"
_SHOWN = 3
"""Heads that are named of those that do not draft."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The files that a name stands for."""

    name: str
    target: ModelFile
    draft: ModelFile | None
    notices: tuple[str, ...] = ()
    """What the person should know, one line each."""


def resolve(model: str, draft: str | None) -> Resolved:
    """Find the files of ``model``; ``draft`` overrides its draft, "none" leaves it out.

    Raises:
        UsageError: an empty name, or one that several files here fit.
        ModelNotFoundError: no such name or file, or not on this machine; the message says what
            gets it.
    """
    pair = pair_called(model)
    target = _single(model) if pair is None else _here(pair, pair.target)
    if draft is not None:
        return Resolved(model, target, None if draft == NO_DRAFT else draft_file(draft))
    if pair is None:
        return _with_head(model, target)
    return Resolved(model, target, None if pair.draft is None else _here(pair, pair.draft))


def pair_called(name: str) -> Pair | None:
    """The pair of the catalogue with that name.

    Raises:
        UsageError: the name is empty.
    """
    if not name.strip():
        raise UsageError("the model's name is empty; `localspec models` lists what there is")
    return catalog().get(name)


def draft_file(name: str) -> ModelFile:
    """The file of a draft; a pair named as a draft lends its smaller model.

    Raises:
        ModelNotFoundError: it is not here.
    """
    pair = pair_called(name)
    if pair is None:
        return _single(name, small=True)
    return _here(pair, pair.draft or pair.target)


def _with_head(name: str, target: ModelFile) -> Resolved:
    """A model, and where it carries no head the best one that lies in its folder."""
    try:
        kind = heads.kind(target.header)
        needs_one = kind == heads.MODEL and not heads.carries_mtp(target.header)
        found = heads_beside(target) if needs_one else Beside()
    except LocalspecError:  # loading the target will say it better
        found = Beside()
    if not found.fitting:
        return Resolved(name, target, None, found.refused)
    best, *others = (file.name for file in found.fitting)
    shown = ", ".join(others[:_SHOWN]) + f" and {len(others) - _SHOWN} more" * (
        len(others) > _SHOWN
    )
    notice = f"of the heads beside {target.name}, {best} drafts, not {shown}"
    notices = (f"{notice}; --draft FILE takes another",) if others else ()
    return Resolved(name, target, found.fitting[0], notices)


def unknown(name: str) -> ModelNotFoundError:
    """What to raise for a name that nothing is called, with the closest three."""
    close = difflib.get_close_matches(name, catalog(), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "`localspec models` lists all"
    return ModelNotFoundError(f"no model called {name!r}; {hint}")


def cached(wanted: file_names.Wanted, *, small: bool = False) -> Path | None:
    """A model of the Hub in the cache; None if it is not there.

    Raises:
        UsageError: several files there are meant.
    """
    commit = None if wanted.revision is None else hf_cache.commit_of(wanted.repo, wanted.revision)
    for snapshot in hf_cache.snapshots(wanted.repo):
        if wanted.revision is not None and snapshot.name != commit:
            continue
        files = hf_cache.cached_files(snapshot)
        entries = [file_names.Entry(path, size) for path, size in files.items()]
        try:
            found = file_names.choose(wanted, file_names.candidates(entries, wanted), small=small)
        except UsageError:
            raise
        except LocalspecError:  # not in this snapshot, or not all of its shards
            continue
        return snapshot / found.first.path
    return None


def _here(pair: Pair, file: PairFile) -> ModelFile:
    path = file.found()
    if path is not None:
        return ModelFile(path)
    if isinstance(file, HubFile):
        raise ModelNotFoundError(
            f"{file.file} of {pair.name!r} is not on this machine; run `localspec pull {pair.name}`"
        )
    raise ModelNotFoundError(f"the files of {pair.name!r} are not here: {file.where} is missing")


def _single(name: str, *, small: bool = False) -> ModelFile:
    path = paths.expand(name)
    if path.is_dir():
        return only_model(path) or ModelFile(path)
    if path.exists():
        return ModelFile(shards(path)[0])  # of the several files of a model the first one is opened
    wanted = file_names.parse(name)
    if wanted is not None:
        found = cached(wanted, small=small)
        if found is not None:
            return ModelFile(found)
        if not name.endswith(".gguf") or ":" in name or hf_cache.snapshots(wanted.repo):
            raise ModelNotFoundError(
                f"{wanted} is not on this machine; run `localspec pull {wanted}`"
            )
    if name.endswith(".gguf"):
        return ModelFile(path)
    raise unknown(name)
