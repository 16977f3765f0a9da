"""The LoRA adapters that requests loaded, by the model that each is for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from localspec.core.errors import DefectError, EngineError, LocalspecError
from localspec.core.options import Options
from localspec.engine.port import OwnEngine
from localspec.serve.backend.reporter import Reporter


class RequestedAdapters:
    """Every further engine of a model loads its adapters too, in whichever slot it is."""

    def __init__(self) -> None:
        self._files: defaultdict[str, dict[str, Path]] = defaultdict(dict)

    def of(self, options: Options) -> Mapping[str, Path]:
        """The adapter files for the model of some options, by the names that engines know."""
        return dict(self._files[options.model])

    def add(self, options: Options, name: str, file: Path) -> None:
        """One was loaded for a model."""
        self._files[options.model][name] = file

    def remove(self, options: Options, name: str) -> None:
        """One is not wanted any more; it may have been unloaded by `load_again`."""
        self._files[options.model].pop(name, None)

    async def load_again(self, engine: OwnEngine, options: Options, reporter: Reporter) -> None:
        """Load them with a new engine; what cannot be loaded again is unloaded for good.

        Raises:
            EngineError: the engine stopped.
        """
        wanted = self._files[options.model]
        for name, path in self.of(options).items():
            try:
                if name in wanted:
                    await engine.adapter(name, path)
                    if name not in wanted:  # it was unloaded meanwhile
                        await engine.adapter(name, None)
            except LocalspecError as error:
                if isinstance(error, EngineError) and not isinstance(error, DefectError):
                    raise
                self.remove(options, name)
                reporter.notice(f"the adapter {path.name} is not loaded again: {error}")
