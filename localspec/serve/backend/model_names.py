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
from localspec.serve.backend.adapters import ServedAdapter, ServedAdapters
from localspec.serve.backend.engine_slots import EngineSlots
from localspec.serve.backend.public_name import public_name
from localspec.serve.http.errors import bad_request, no_such_model
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

    def called(self, options: Options | None) -> str:
        """The name of the model of some options; None is the present one."""
        return self.present if options is None else public_name(options.model)

    async def options(self, name: str | None) -> Options | None:
        """The options to load a name with; None: keep what is loaded. An alias is a name of the
        model that the server was started with; ``*`` stands for every name that no model has.

        Raises:
            ApiError: 404 for a name that is not among `listed`.
        """
        if name is None:
            return None
        found = await self._known(name) or await self._adapted(name)
        if found is not None or ("*" in self._settings.aliases and len(name) <= _LONGEST_NAME):
            return found
        known = ", ".join(model.name for model in (await self.listed())[:_NAMES_SHOWN])
        shown = name if len(name) <= 80 else f"{name[:80]}..."
        raise no_such_model(
            f"there is no model {shown!r} here; there are: {known}. Start the server with --alias "
            "NAME to accept another name"
        )

    async def known(self, name: str) -> bool:
        """Whether a name is that of a model or of an adapter; "*" makes none known."""
        return (await self._known(name) or await self._adapted(name)) is not None

    async def adapter(self, name: str | None) -> ServedAdapter | None:
        """The adapter that a name means; None where it means a model, or nothing."""
        if name is None or not self._adapters.listed():
            return None
        return None if await self._known(name) else self._adapters.named(untagged(name))

    async def require_new(self, name: str) -> None:
        """Refuse the name of a model for an adapter.

        Raises:
            ApiError: 400, it is one.
        """
        if await self._known(name):
            raise bad_request(f"{name[:80]!r} is the name of a model here", "lora_name")

    async def _adapted(self, name: str) -> Options | None:
        """The options of the model that an adapter of that name belongs to."""
        found = self._adapters.named(untagged(name))
        return None if found is None else found.options

    async def _known(self, name: str) -> Options | None:
        """The options of the model of that name."""
        name = untagged(name)
        first = self._slots.first
        for options in (*self._slots.every, first):
            if name in {options.model, public_name(options.model)}:
                return options
        if name in self._settings.aliases:
            return first
        if name in {other for other, _ in await self._other_models()}:
            return _instead_of(first, name)
        on_hub = (
            await asyncio.to_thread(downloaded_from_hub, name) if self._settings.switch else None
        )
        return None if on_hub is None else _instead_of(first, on_hub)

    async def listed(self) -> list[ListedModel]:
        """The models that a request may name, the present one first."""
        here = self._slots.loaded
        names = [ListedModel(self.present, loaded=self._slots.info is not None)]
        first = public_name(self._slots.first.model)
        others = [(first, ""), *await self._other_models()]
        aliases = [alias for alias in self._settings.aliases if alias not in {"*", self.present}]
        for name, about in dict(others).items():
            if name not in {self.present, *aliases}:
                names.append(ListedModel(name, loaded=name in here, about=about))
        names += [ListedModel(alias, loaded=first in here) for alias in aliases]
        taken = {model.name for model in names}
        for one in self._adapters.listed():
            if one.name not in taken:
                parent = public_name(one.options.model)
                names.append(ListedModel(one.name, loaded=parent in here, parent=parent))
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


def untagged(name: str) -> str:
    """A name without the tag that Ollama gives to names without one."""
    return name.removesuffix(":latest")


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
