"""Heads that lie beside a target, as repositories hold them, and the target that they lie beside:
known by their headers alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.models.compat import gemma_assistant, heads
from localspec.models.gguf.header import read_opening
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.shards import shards

_BEST = (heads.MTP, heads.EAGLE3, heads.DFLASH, heads.MEDUSA)
"""Kinds of heads that this version runs, those first that are right most often."""
_OF_HEADS = frozenset({heads.EAGLE3, heads.DFLASH, heads.MEDUSA, gemma_assistant.ARCHITECTURE})
_NO_MODELS = frozenset({None, "clip", "imatrix"})
"""Architectures of files that are neither models nor heads: damaged ones, parts for images."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The heads in a target's folder."""

    fitting: tuple[ModelFile, ...] = ()
    """Those for this target, the best first."""
    refused: tuple[str, ...] = ()
    """Why the others are not used, a line each, where nothing fits and they could be meant for no
    other model of the folder.
    """


def heads_beside(target: ModelFile) -> Beside:
    """The heads in the folder of a target, or else beside the file that it is a link to. Their
    names do not matter, but of several of a kind the one called most like the target is first.

    Raises:
        LocalspecError: the target cannot be read.
    """
    folder = target.path.parent
    found = _in(folder, target)
    there = target.path.resolve().parent
    if found.fitting or there == folder.resolve():
        return found
    linked = _in(there, target)
    return Beside(linked.fitting, found.refused or linked.refused)


def _in(folder: Path, target: ModelFile) -> Beside:
    opened = {path: read_opening(path) for path in _neighbours(folder, target.path)}
    likely = [path for path, opening in opened.items() if _may_be_head(opening)]
    if not likely:
        return Beside()
    fitting: dict[Path, tuple[int, int, Path]] = {}
    files = {path: ModelFile(path) for path in likely}
    refused: list[str] = []
    models = any(_architecture(opened[path]) not in _NO_MODELS for path in opened.keys() - likely)
    for path in likely:
        try:
            head = files[path].header
        except LocalspecError as error:  # a damaged neighbour is not what was asked for
            refused.append(str(error))
            continue
        kind, trouble = heads.kind(head), heads.head_trouble(head, target.header)
        if kind == heads.MODEL:
            models = True
        elif trouble is not None or kind not in _BEST:
            refused.append(f"{path.name} beside {target.name} cannot draft for it: {trouble}")
        else:  # a cache has links to its files
            order = _BEST.index(kind), -_alike(path.name, target.name), path
            fitting.setdefault(path.resolve(), order)
    best = tuple(files[path] for *_, path in sorted(fitting.values()))
    return Beside(best, () if best or models else tuple(refused))


def only_model(folder: Path) -> ModelFile | None:
    """The model of a folder that holds one, and heads perhaps; None if there is none or several."""
    found: list[ModelFile] = []
    for path in filter(_first, sorted(folder.glob("*.gguf"))):
        opening = read_opening(path)
        architecture = _architecture(opening)
        if architecture in _NO_MODELS or architecture in _OF_HEADS:
            continue
        file = ModelFile(path)
        if not _may_be_head(opening) or heads.kind(file.header) == heads.MODEL:
            found.append(file)
    return found[0] if len(found) == 1 else None


def _neighbours(folder: Path, target: Path) -> list[Path]:
    """Other files than the target's in a folder."""
    own = {path.name for path in (*shards(target), *shards(target.resolve()))}
    return [p for p in sorted(folder.glob("*.gguf")) if p.name not in own and _first(p)]


def _first(path: Path) -> bool:
    """Whether a file is whole, or the first of several."""
    return path.name == shards(path)[0].name


def _alike(one: str, other: str) -> int:
    """Letters that two names begin with."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _architecture(opening: Mapping[str, object]) -> object:
    return opening.get("general.architecture")


def _may_be_head(opening: Mapping[str, object]) -> bool:
    """By what stands before the vocabulary, which is long: folders hold many models, and whatever
    writes a model writes its parameters first.
    """
    architecture = _architecture(opening)
    ahead = opening.get(f"{architecture}.nextn_predict_layers", 0)
    return architecture in _OF_HEADS or ahead != 0


__all__ = ["Beside", "heads_beside", "only_model"]
