"""Finds the files that a MODEL string means, and heads beside a target. Never connects: errors name
what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.core.drafter_registry import MODEL
from localspec.core.errors import LocalspecError, ModelNotFoundError, UsageError
from localspec.core.options import NO_DRAFT
from localspec.models.catalog import file_names, hf_cache
from localspec.models.catalog.links import HubRef
from localspec.models.catalog.pair import HubFile, Pair, PairFile
from localspec.models.catalog.reference import LocalRef, ModelRef, PairRef, reference
from localspec.models.compat import gemma_assistant, heads
from localspec.models.gguf.header import read_opening
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.shards import shards

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
        needs_one = kind == MODEL and not heads.carries_mtp(target.header)
        found = find_sidecars(target) if needs_one else Sidecars()
    except LocalspecError:  # loading the target reports it better
        found = Sidecars()
    if not found.fitting:
        return Resolved(name, target, None, found.refused)
    best, *others = (file.name for file in found.fitting)
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    shown = ", ".join(others[:_SHOWN]) + more
    notice = f"of the heads next to {target.name}, {best} drafts, not {shown}"
    notices = (f"{notice}; --draft FILE takes another",) if others else ()
    return Resolved(name, target, found.fitting[0], notices)


def cached(ref: HubRef, *, small: bool = False) -> Path | None:
    """A model of the Hub in the cache; None if it is not there. Where the reference names no single
    one, what an interrupted pull left hides no whole one.

    Raises:
        UsageError: the reference matches several files there.
    """
    names_one = ref.tag is not None and not ref.tag.endswith("/")
    for snapshot, there in hf_cache.models(ref):
        found = [model for model in there if names_one or model.whole]
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


_HEAD_ARCHITECTURES = frozenset({*heads.HEAD_KINDS, gemma_assistant.ARCHITECTURE})
"""Architectures of head files."""
_NO_MODELS = frozenset({None, "clip", "imatrix"})
"""Architectures of files that are neither models nor heads: damaged files, image projectors."""


@dataclass(frozen=True, slots=True)
class Sidecars:
    """The heads in a target's folder."""

    fitting: tuple[ModelFile, ...] = ()
    """Heads for this target, the best first."""
    refused: tuple[str, ...] = ()
    """Why each head was refused, one line each. Empty where a head fits, or where the folder holds
    another model that the heads may belong to.
    """


def find_sidecars(target: ModelFile) -> Sidecars:
    """The heads in the folder of a target; where none fits, those next to the file it links to.

    Of several heads of a kind, the one whose name shares the longest prefix with the target's is
    first.

    Raises:
        LocalspecError: the target cannot be read.
    """
    folder = target.path.parent
    found = _in(folder, target)
    there = target.path.resolve().parent
    if found.fitting or there == folder.resolve():
        return found
    linked = _in(there, target)
    return Sidecars(linked.fitting, found.refused or linked.refused)


def _in(folder: Path, target: ModelFile) -> Sidecars:
    opened = {path: read_opening(path) for path in _neighbours(folder, target.path)}
    likely = [path for path, opening in opened.items() if _may_be_head(opening)]
    if not likely:
        return Sidecars()
    fitting: dict[Path, tuple[int, int, Path]] = {}
    files = {path: ModelFile(path) for path in likely}
    refused: list[str] = []
    models = any(_architecture(opened[path]) not in _NO_MODELS for path in opened.keys() - likely)
    for path in likely:
        try:
            head = files[path].header
        except LocalspecError as error:  # a damaged neighbour must not stop the target
            refused.append(str(error))
            continue
        kind, problem = heads.kind(head), heads.head_problem(head, target.header)
        if kind == MODEL:
            models = True
        elif problem is not None or kind not in heads.HEAD_KINDS:
            refused.append(f"{path.name} next to {target.name} cannot draft for it: {problem}")
        else:  # a cache holds links; several may lead to one file
            alike = file_names.common_prefix(path.name, target.name)
            order = heads.HEAD_KINDS.index(kind), -alike, path
            fitting.setdefault(path.resolve(), order)
    best = tuple(files[path] for *_, path in sorted(fitting.values()))
    return Sidecars(best, () if best or models else tuple(refused))


def only_model(folder: Path) -> ModelFile | None:
    """The only model in a folder, apart from heads; None if there is none or several."""
    found: list[ModelFile] = []
    for path in filter(_first, sorted(folder.glob("*.gguf"))):
        opening = read_opening(path)
        architecture = _architecture(opening)
        if architecture in _NO_MODELS or architecture in _HEAD_ARCHITECTURES:
            continue
        file = ModelFile(path)
        if not _may_be_head(opening) or heads.kind(file.header) == MODEL:
            found.append(file)
    return found[0] if len(found) == 1 else None


def _neighbours(folder: Path, target: Path) -> list[Path]:
    """GGUF files of a folder that are not files of the target; of shards only the first."""
    own = {path.name for path in (*shards(target), *shards(target.resolve()))}
    return [p for p in sorted(folder.glob("*.gguf")) if p.name not in own and _first(p)]


def _first(path: Path) -> bool:
    """Whether a file is a model of its own or the first shard."""
    return path.name == shards(path)[0].name


def _architecture(opening: Mapping[str, object]) -> object:
    return opening.get("general.architecture")


def _may_be_head(opening: Mapping[str, object]) -> bool:
    """Whether a file may be a head, by the metadata before its vocabulary.

    Folders hold many models, and reading a vocabulary is slow; writers put the parameters first.
    """
    architecture = _architecture(opening)
    ahead = opening.get(f"{architecture}.nextn_predict_layers", 0)
    return architecture in _HEAD_ARCHITECTURES or ahead != 0
