"""The files that a server needs: those of models that are loaded or being loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from localspec.core.errors import LocalspecError
from localspec.core.options import NO_DRAFT, NO_PROJECTOR, Options
from localspec.serve.backend.embeddings import Embeddings
from localspec.serve.backend.engine_slots import EngineSlots


@dataclass(frozen=True, slots=True)
class FilesInUse:
    """What is known of them without a look at the disk, which `met_by` takes."""

    models: tuple[Options, ...]
    """Options of models."""
    opened: tuple[Path, ...]
    """Files that are loaded, wherever their names lead by now."""

    @classmethod
    def of(cls, slots: EngineSlots, embeddings: Embeddings) -> Self:
        """The files of models that have an engine or get one, of the model that the server was
        started with while any has, and of the models of texts, loaded or not.
        """
        busy, opened = list[Options](), list[Path]()
        for options in slots.every:
            slot = slots.slot_of(options)
            if slot is None or (slot.info is None and not slot.loading):
                continue
            busy.append(slot.options)
            opened += slots.adapters.of(options).values()
            if slot.info is not None:
                opened += [Path(file) for file in (slot.info.target, slot.info.draft) if file]
        texts = [Options(model=one.model, draft=NO_DRAFT) for one in embeddings.processes.values()]
        return cls((*busy, *([slots.first] if busy else []), *texts), tuple(opened))

    def met_by(self, files: tuple[Path, ...]) -> bool:
        """Whether one of the files is among them, by whichever link."""
        from localspec.models.gguf.shards import shards

        used = [part for file in self.opened for part in shards(file)]
        for options in self.models:
            used += _files_of(options)
        return not {file.resolve() for file in used}.isdisjoint(file.resolve() for file in files)


def _files_of(options: Options) -> Iterator[Path]:
    """The files that loading a model takes, as far as they are there."""
    from localspec.models.catalog.resolve import resolve

    yield from (one.path for one in (*options.adapters, *options.control_vectors))
    if options.mmproj not in {None, NO_PROJECTOR}:
        yield Path(str(options.mmproj))
    try:
        pair = resolve(options.model, options.draft)
    except LocalspecError:  # what cannot be found cannot be loaded; loading it says why
        return
    for file in (pair.target, pair.draft):
        if file is not None:
            yield from file.paths
