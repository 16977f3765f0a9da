"""Sidecars: heads in the folder of their target, as repositories hold them. Headers identify them,
names do not.
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
        if kind == heads.MODEL:
            models = True
        elif problem is not None or kind not in heads.HEAD_KINDS:
            refused.append(f"{path.name} next to {target.name} cannot draft for it: {problem}")
        else:  # a cache holds links; several may lead to one file
            order = heads.HEAD_KINDS.index(kind), -_common_prefix(path.name, target.name), path
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
        if not _may_be_head(opening) or heads.kind(file.header) == heads.MODEL:
            found.append(file)
    return found[0] if len(found) == 1 else None


def _neighbours(folder: Path, target: Path) -> list[Path]:
    """GGUF files of a folder that are not files of the target; of shards only the first."""
    own = {path.name for path in (*shards(target), *shards(target.resolve()))}
    return [p for p in sorted(folder.glob("*.gguf")) if p.name not in own and _first(p)]


def _first(path: Path) -> bool:
    """Whether a file is a model of its own or the first shard."""
    return path.name == shards(path)[0].name


def _common_prefix(one: str, other: str) -> int:
    """Characters that two names both begin with."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _architecture(opening: Mapping[str, object]) -> object:
    return opening.get("general.architecture")


def _may_be_head(opening: Mapping[str, object]) -> bool:
    """Whether a file may be a head, by the metadata before its vocabulary.

    Folders hold many models, and reading a vocabulary is slow; writers put the parameters first.
    """
    architecture = _architecture(opening)
    ahead = opening.get(f"{architecture}.nextn_predict_layers", 0)
    return architecture in _HEAD_ARCHITECTURES or ahead != 0
