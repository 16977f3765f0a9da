"""A model on disk: one GGUF file or several shards, whose headers are parsed once."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass
from pathlib import Path

from localspec.models.gguf.header import Header, read_header
from localspec.models.gguf.shards import n_bytes, shards


@dataclass(frozen=True)
class ModelFile:
    """A model on disk. Its headers are parsed at first use, and once.

    A parse takes 0.2 s with a vocabulary of 152k tokens, so functions that need a header take the
    ModelFile instead of a path.
    """

    path: Path
    """The file, or the first shard of a split model."""

    @property
    def name(self) -> str:
        """Name of the file, without folders."""
        return self.path.name

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files of the model, in order."""
        return tuple(shards(self.path))

    @property
    def n_bytes(self) -> int:
        """Bytes of all files.

        Raises:
            OSError: a file is missing.
        """
        return n_bytes(self.path)

    @functools.cached_property
    def headers(self) -> tuple[Header, ...]:
        """Headers of all files, in the order of `paths`.

        Raises:
            ModelNotFoundError: a file is missing.
            ModelFileError: a file is not a GGUF, cut short, damaged, or unreadable.
        """
        return tuple(read_header(path) for path in self.paths)

    @functools.cached_property
    def header(self) -> Header:
        """Header of the first file, with the tensors of all files.

        Raises:
            ModelNotFoundError, ModelFileError: see `headers`.
        """
        first, *others = self.headers
        if not others:
            return first
        tensors = itertools.chain(first.tensors, *(part.tensors for part in others))
        return dataclasses.replace(first, tensors=tuple(tensors))
