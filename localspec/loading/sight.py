"""How a loaded model sees: its projector, loaded with the first picture.

A chat without pictures compiles, loads and imports nothing of this.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path

from localspec.core.errors import Interrupted, LocalspecError, MediaError
from localspec.core.interrupt import Cancelled, never
from localspec.core.options import NO_PROJECTOR, Options
from localspec.llama.devices import backend
from localspec.llama.projector import Projector
from localspec.llama.target import LlamaTarget
from localspec.loading.resources import Parts
from localspec.models.catalog.projectors import (
    Senses,
    find_projector,
    require_projector,
    senses,
)
from localspec.models.gguf.header import read_opening
from localspec.models.gguf.model_file import ModelFile

_WORK = 256 << 20
"""Bytes that encoding takes besides the file, roughly: llama.cpp tells it afterwards."""
_OWN_CONTEXT = 512 << 20
"""Bytes that the encoder's process takes on a GPU before it computes: CUDA's own, and those of its
libraries. Not measured here; others tell of 300 to 600 MB."""


def projector_of(file: ModelFile, options: Options) -> Path | None:
    """The projector of the model in a file; None where it cannot see."""
    if options.mmproj is not None:
        return None if options.mmproj == NO_PROJECTOR else Path(options.mmproj)
    try:
        return find_projector(file.header, file.path)
    except (LocalspecError, OSError):
        return None


def projector_bytes(file: ModelFile, options: Options) -> int:
    """Memory to be left for the projector: of one that is named, or loaded with the model."""
    if not options.sees and options.mmproj is None:
        return 0
    path = projector_of(file, options)
    if path is None or not path.is_file():
        return 0
    on_device = backend() == "cuda" and options.gpu_layers != 0
    return projector_memory(path) + (_OWN_CONTEXT if on_device else 0)


def projector_memory(path: Path) -> int:
    """Bytes that a loaded projector takes, roughly."""
    return path.stat().st_size + _WORK


class ModelSight:
    """A `localspec.generation.pictures.Sight`."""

    def __init__(
        self, file: ModelFile, target: LlamaTarget, parts: Parts, options: Options
    ) -> None:
        """The projector of the model in ``file`` encodes for ``target``, and belongs to ``parts``.

        Raises:
            ModelNotFoundError, ModelFileError: the one that the options name is none.
        """
        self._file = file
        self._target = target
        self._parts = parts
        self._options = options
        self._lock = threading.Lock()
        self._projector: Projector | None = None
        if options.mmproj not in {None, NO_PROJECTOR}:
            require_projector(Path(str(options.mmproj)))

    @functools.cached_property
    def path(self) -> Path | None:
        """The projector's file; None where the model cannot see."""
        return projector_of(self._file, self._options)

    @functools.cached_property
    def senses(self) -> Senses:
        """What the projector encodes."""
        return Senses(False, False) if self.path is None else senses(read_opening(self.path))

    def encoder(self, tell: Callable[[str], None], cancelled: Cancelled = never) -> Projector:
        """See `localspec.generation.pictures.Sight`."""
        with self._lock:
            if self._projector is None:
                self._projector = self._loaded(tell, cancelled)
            return self._projector

    def _loaded(self, tell: Callable[[str], None], cancelled: Cancelled) -> Projector:
        path, name = self.path, self._file.name
        if path is None:
            raise MediaError(
                f"{name} cannot see pictures or hear sounds: there is no projector (mmproj file) "
                "beside it; if its repository has one, `localspec pull` fetches it, and --mmproj "
                "FILE names one elsewhere; or choose a model that does (demo-sees is a toy)"
            )
        from localspec.llama import mtmd_library

        told = -1.0

        def compiling(part: float) -> None:
            nonlocal told
            if cancelled():
                raise Interrupted("interrupted while the library for pictures was compiled")
            if told < 0:  # it is asked often until the first unit is compiled
                told = 0.0
                tell(
                    "compiling llama.cpp's library for pictures, once: about a minute of two cores"
                )
            elif part >= told + 0.25:
                told = part
                tell(f"compiling the library for pictures: {part:.0%}")

        library = mtmd_library.obtain(offline=self._options.offline, on_unit=compiling)
        context = self._target.context
        made = Projector(
            path, context.model, library, threads=context.threads, stop=self._parts.stop
        )
        self._parts.loaded.insert(0, made)
        self._target.pictures.projector = made
        return made
