"""The names that requests may call models by."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.core.errors import LocalspecError, UsageError
from localspec.core.options import NO_PROJECTOR, Options
from localspec.serve.backend.adapters import ServedAdapters
from localspec.serve.backend.engine_slots import EngineSlots
from localspec.serve.backend.public_name import public_name, spelt, untagged
from localspec.serve.backend.wanted import Wanted
from localspec.serve.http.errors import no_such_model
from localspec.serve.http.settings import ServeSettings

if TYPE_CHECKING:
    from localspec.models.catalog.pair import Pair

_NAMES_SHOWN = 8
_LONGEST_NAME = 512
"""Characters: no file and no repository of the Hub has more."""
_FRESH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that requests may name."""

    name: str
    options: Options
    loaded: bool
    about: str = ""
    parent: str = ""
    """The model that it adapts, where it is an adapter."""


class ModelNames:
    """The model that the server was started with, the downloaded ones of the catalogue, and those
    of the Hub's cache by their names there.

    A request can name no file.
    """

    def __init__(
        self, settings: ServeSettings, slots: EngineSlots, adapters: ServedAdapters
    ) -> None:
        self._settings = settings
        self._slots = slots
        self._adapters = adapters
        self._others: tuple[tuple[str, str], ...] = ()
        self._looked = -_FRESH_SECONDS

    @property
    def present(self) -> str:
        """The name of the model that is loaded, or that would be."""
        return public_name(self._slots.options.model)

    async def wanted(self, name: str | None) -> Wanted:
        """What a request wants that names that as its model: a model, an adapter and its model, or
        whatever is present, where it names nothing. An alias is a name of the model that the server
        was started with; ``*`` stands for every name that no model has.

        Raises:
            ApiError: 404 for a name that is not among `listed`.
        """
        if name is None:
            return Wanted()
        found = await self._found(name)
        if found is not None or ("*" in self._settings.aliases and len(name) <= _LONGEST_NAME):
            return found or Wanted()
        known = ", ".join(model.name for model in (await self.listed())[:_NAMES_SHOWN])
        shown = name if len(name) <= 80 else f"{name[:80]}..."
        raise no_such_model(
            f"there is no model {shown!r} here; there are: {known}. Start the server with --alias "
            "NAME to accept another name"
        )

    async def known(self, name: str) -> bool:
        """Whether a name is that of a model or of an adapter; "*" makes none known."""
        return await self._found(name) is not None

    async def _found(self, name: str) -> Wanted | None:
        """The model or adapter of that name; a model, where both have it."""
        model = await self.model(name)
        if model is not None:
            return Wanted(model)
        found = (self._adapters.named(one) for one in spelt(name))
        return next((Wanted.calling(one) for one in found if one is not None), None)

    async def model(self, name: str) -> Options | None:
        """The options of the model of that name, which is none of an adapter."""
        first, names = self._slots.first, {*spelt(name)}
        held = self.held(name)
        if held is not None:
            return held
        if names & {*self._settings.aliases}:
            return first
        for other, _ in await self._other_models():
            if other in names:
                return _instead_of(first, other)
        if not self._settings.switch:
            return None
        on_hub = await asyncio.to_thread(downloaded_from_hub, untagged(name))
        return None if on_hub is None else _instead_of(first, on_hub)

    def held(self, name: str) -> Options | None:
        """The options of a model that this server has, or began with, by its name."""
        names = {*spelt(name)}
        for options in (*self._slots.every, self._slots.first):
            if names & {options.model, public_name(options.model)}:
                return options
        return None

    async def listed(self) -> list[ListedModel]:
        """The models that a request may name, the present one first."""
        other_models = await self._other_models()
        here, first, options = self._slots.loaded, self._slots.first, self._slots.options
        present, name_of_first = public_name(options.model), public_name(first.model)
        names = [ListedModel(present, options, loaded=self._slots.info is not None)]
        aliases = [alias for alias in self._settings.aliases if alias not in {"*", present}]
        for name, about in {name_of_first: "", **dict(other_models)}.items():
            if name not in {present, *aliases}:
                own = first if name == name_of_first else _instead_of(first, name)
                names.append(ListedModel(name, own, loaded=name in here, about=about))
        loaded = name_of_first in here
        names += [ListedModel(alias, first, loaded=loaded) for alias in aliases]
        taken = {model.name for model in names}
        for one in self._adapters.listed():
            if not taken & {*spelt(one.name)}:
                parent = public_name(one.options.model)
                loaded = parent in here
                names.append(ListedModel(one.name, one.options, loaded=loaded, parent=parent))
        return names

    def look_again(self) -> None:
        """Models were downloaded or removed."""
        self._looked = -_FRESH_SECONDS

    async def _other_models(self) -> tuple[tuple[str, str], ...]:
        """Name and description of the models on this disk."""
        if self._settings.switch and time.monotonic() - self._looked >= _FRESH_SECONDS:
            self._others = await asyncio.to_thread(_downloaded)
            self._looked = time.monotonic()
        return self._others


def _instead_of(first: Options, name: str) -> Options:
    """The options of another model than the one of the start: what was named for that one's weights
    is not for these.
    """
    sight = first.mmproj if first.mmproj == NO_PROJECTOR else None
    return dataclasses.replace(
        first,
        model=name,
        draft=None,
        lora="",
        control_vector="",
        mmproj=sight,
        offline=True,
        smaller=0,
    )


def _downloaded() -> tuple[tuple[str, str], ...]:
    return tuple((pair.name, pair.about) for pair in pairs().values() if pair.installed)


def pairs() -> Mapping[str, Pair]:
    """The catalogue.

    Raises:
        LocalspecError: it is damaged, which no request is to blame for.
    """
    from localspec.models.catalog.catalog import catalog

    try:
        return catalog()
    except UsageError as error:
        raise LocalspecError(str(error)) from None


def hub_name(name: str) -> str | None:
    """The name of a model on the Hub as ``user/repo:QUANT``, from that or a link to it; None where
    it is none, or a file of this machine: a request can name no file.
    """
    from localspec.core.files import paths
    from localspec.models.catalog.links import parse_hub_ref

    ref = parse_hub_ref(name) if len(name) <= _LONGEST_NAME else None
    if ref is None or paths.exists(paths.expand(str(ref))):
        return None
    return str(ref)


def downloaded_from_hub(name: str) -> str | None:
    """The name to load a model of the Hub by, if it is in the cache; None otherwise."""
    from localspec.models.catalog.links import parse_hub_ref
    from localspec.models.catalog.resolve import cached

    found = hub_name(name)
    ref = parse_hub_ref(found) if found is not None else None
    try:
        return found if ref is not None and cached(ref) is not None else None
    except LocalspecError:  # it matches several files
        return None
