"""Heads that lie beside a target, as repositories hold them: known by their headers alone."""

from __future__ import annotations

import itertools
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.pairs import assistants, heads
from localspec.pairs.header import Header, read_opening

_BEST = (heads.MTP, heads.EAGLE3, heads.DFLASH, heads.MEDUSA)
"""Kinds of heads that this version runs, those first that are right most often."""
_OF_HEADS = frozenset({heads.EAGLE3, heads.DFLASH, heads.MEDUSA, assistants.ARCHITECTURE})


def heads_beside(target: Path) -> list[Path]:
    """The heads for this target in its folder, the best first. Their names do not matter, but of
    several of a kind the one called most like the target is first.

    Raises:
        LocalspecError: the target cannot be read.
    """
    likely = [
        path
        for path in sorted(target.parent.glob("*.gguf"))
        if path.name != target.name and _may_be_head(path)
    ]
    if not likely:
        return []
    header = heads.read_whole(target)
    fitting: dict[Path, tuple[int, int, Path]] = {}
    for path in likely:
        kind = _kind(path, header)
        if kind is not None:  # a cache has links to its files
            order = _BEST.index(kind), -_alike(path.name, target.name), path
            fitting.setdefault(path.resolve(), order)
    return [path for *_, path in sorted(fitting.values())]


def _alike(one: str, other: str) -> int:
    """Letters that two names begin with."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _may_be_head(path: Path) -> bool:
    """By what stands before the vocabulary, which is long: folders hold many models, and whatever
    writes a model writes its parameters first.
    """
    opening = read_opening(path)
    architecture = opening.get("general.architecture")
    ahead = opening.get(f"{architecture}.nextn_predict_layers", 0)
    return architecture in _OF_HEADS or ahead != 0


def _kind(path: Path, target: Header) -> str | None:
    """Of a head that fits; None for all other files."""
    try:
        header = heads.read_whole(path)
    except LocalspecError:  # a damaged neighbour is not what was asked for
        return None
    kind = heads.kind(header)
    return kind if kind in _BEST and heads.head_trouble(header, target) is None else None


__all__ = ["heads_beside"]
