"""The LoRA adapters that requests loaded, by the model that each is for."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from localspec.core.errors import DefectError, EngineError, LocalspecError
from localspec.core.options import Options
from localspec.engine.port import OwnEngine
from localspec.serve.backend.reporter import Reporter


class RequestedAdapters:
    """Every further engine of a model loads its adapters too, in whichever slot it is."""

    def __init__(self) -> None:
        self._files: defaultdict[str, list[Path]] = defaultdict(list)

    def of(self, options: Options) -> tuple[Path, ...]:
        """The adapter files for the model of some options."""
        return tuple(self._files[options.model])

    def add(self, options: Options, file: Path) -> None:
        """One was loaded for a model."""
        self._files[options.model].append(file)

    def remove(self, options: Options, file: Path) -> None:
        """One is not wanted any more."""
        self._files[options.model].remove(file)

    async def load_again(self, engine: OwnEngine, options: Options, reporter: Reporter) -> None:
        """Load them with a new engine; what cannot be is refused to requests later.

        Raises:
            EngineError: the engine stopped.
        """
        for path in self.of(options):
            try:
                await engine.adapter(path, load=True)
            except LocalspecError as error:
                if isinstance(error, EngineError) and not isinstance(error, DefectError):
                    raise
                reporter.notice(f"the adapter {path.name} is not loaded again: {error}")
