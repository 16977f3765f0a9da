"""The models that the slots of a server hold: which are loaded, in which slot, and their facts."""

from __future__ import annotations

from localspec.core.errors import LocalspecError
from localspec.core.events import ModelInfo
from localspec.core.options import Options
from localspec.engine.port import OwnEngine
from localspec.serve.backend.engine_slot import EngineSlot
from localspec.serve.backend.public_name import public_name


class HeldModels:
    """What is said of *the* model, or the present one, is said of the one used last.
    `EngineSlots` adds and removes slots.
    """

    def __init__(self, first: EngineSlot) -> None:
        self.first = first.options
        """Options of the model that the server was started with."""
        self._slots = [first]
        """In the order in which requests were let in, the last one last; of different models."""
        self._removed_restarts = 0
        """Those of slots that are gone."""

    @property
    def present(self) -> EngineSlot:
        """The slot of the model that was used last."""
        return self._slots[-1]

    @property
    def loaded(self) -> dict[str, ModelInfo]:
        """All loaded models by their public names, the present one first."""
        slots = reversed(self._slots)
        return {public_name(s.options.model): s.info for s in slots if s.info is not None}

    @property
    def every(self) -> list[Options]:
        """Options of all models that have a slot, the present one first."""
        return [slot.options for slot in reversed(self._slots)]

    @property
    def options(self) -> Options:
        """Options of the present model."""
        return self.present.options

    @property
    def info(self) -> ModelInfo | None:
        """The present pair; None while it is not loaded."""
        return self.present.info

    def slot_of(self, options: Options | None) -> EngineSlot | None:
        """The slot that holds a model or loads it, None meaning the present one; None where there
        is none.
        """
        if options is None:
            return self.present
        return next((s for s in self._slots if s.options.model == options.model), None)

    def info_of(self, options: Options | None) -> ModelInfo | None:
        """The pair of some options, None meaning the present model; None while it is not loaded."""
        slot = self.slot_of(options)
        return slot.info if slot is not None else None

    @property
    def loading(self) -> bool:
        """Whether a model is being loaded."""
        return any(slot.loading for slot in self._slots)

    @property
    def ready(self) -> bool:
        """Whether some model can answer now."""
        return any(slot.info is not None and not slot.loading for slot in self._slots)

    @property
    def error(self) -> LocalspecError | None:
        """Why the last attempt to load the present model failed."""
        return self.present.error

    @property
    def restarts(self) -> int:
        """How often engines that had died were started again."""
        return self._removed_restarts + sum(slot.restarts for slot in self._slots)

    def options_of(self, engine: OwnEngine) -> Options:
        """Options of the model of an engine in use; the present one's if it has just died."""
        return next((s.options for s in self._slots if s.holds(engine)), self.options)
