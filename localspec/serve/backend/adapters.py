"""The LoRA adapters of a server: which there are, by number and by name, and their usual scales.

Requests name adapters and never files, but for `load`, which is for the folders that the server was
started with.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from localspec.core.adapter_list import MOST, AdapterUse
from localspec.core.async_places import AsyncPlaces
from localspec.core.errors import LocalspecError, ModelFileError, UsageError
from localspec.core.files import paths
from localspec.core.options import Options
from localspec.engine.port import OwnEngine
from localspec.models.compat.adapters import require_fitting
from localspec.models.gguf.model_file import ModelFile
from localspec.serve.backend.engine_slots import EngineSlots
from localspec.serve.backend.engine_times import KeepAlive
from localspec.serve.backend.held_adapters import HeldAdapters
from localspec.serve.backend.public_name import public_name
from localspec.serve.backend.reporter import Reporter
from localspec.serve.backend.wanted import ServedAdapter, Wanted
from localspec.serve.http.errors import ApiError, bad_request, no_such_model, without_folders


@dataclass(frozen=True, slots=True)
class AdaptedEngine:
    """An engine whose turn has come for a request, with the adapters of that request, which stay
    until it is left or `submitted` is called.
    """

    engine: OwnEngine
    options: Options
    """Options of its model."""
    adapters: tuple[AdapterUse, ...] | None
    """The adapters by the engine's names; None: those that the model was loaded with."""
    _holding: contextlib.ExitStack

    def submitted(self) -> None:
        """The engine has all that the request asks of it, and keeps the adapters itself."""
        self._holding.close()


class ServedAdapters:
    """The adapters of ``--lora``, and of requests that loaded one, for one asyncio loop."""

    def __init__(
        self, slots: EngineSlots, reporter: Reporter, folders: Sequence[Path] = ()
    ) -> None:
        """Requests may load files of the ``folders``."""
        self._slots = slots
        self._held = HeldAdapters(slots, reporter)
        self._folders = tuple(folder.resolve() for folder in folders)
        self._added: dict[int, ServedAdapter] = {}
        """By number, maybe with some that no engine loads any more."""
        self._next = self._loads = 0
        self.changing = AsyncPlaces(1)
        """The place of whoever loads or unloads one."""
        for adapter in slots.first.adapters:
            stem = adapter.path.stem
            name = stem if self.named(stem) is None else f"{stem}-{self._next}"
            found = name, str(adapter.path), adapter.path, adapter.scale, slots.first
            self._add(*found, stays=True)
        self._changed = False
        """Whether the usual scales are no longer those of the start."""

    def _add(
        self, name: str, key: str, path: Path, scale: float, options: Options, *, stays: bool
    ) -> None:
        found = name, key, path, path.resolve(), scale, scale or 1.0, options, stays
        self._added = {**self._known, self._next: ServedAdapter(self._next, *found)}
        self._next += 1

    @property
    def _known(self) -> dict[int, ServedAdapter]:
        """The adapters by number: those of ``--lora``, and what engines of their models load."""
        loaded = self._slots.adapters
        return {
            number: one
            for number, one in self._added.items()
            if one.stays or one.key in loaded.of(one.options)
        }

    def listed(self) -> list[ServedAdapter]:
        """All, in the order of their numbers."""
        return [*self._known.values()]

    def named(self, name: str) -> ServedAdapter | None:
        """The one of that name, if there is one."""
        return next((one for one in self._known.values() if one.name == name), None)

    def wanted(self, named: Wanted, asked: Iterable[AdapterUse] | None) -> Wanted:
        """What a request wants that has ``named`` a model, an adapter or nothing, and ``asked`` for
        adapters by number, unless that is None. They say which model it wants, too.

        Raises:
            ApiError: 400, it names an adapter and asks for some, there is none of that number or it
                is for another model, or it names one twice.
        """
        if asked is None:
            return named
        if named.called:
            said = f"model is the adapter {named.called} already; leave out lora, or name the model"
            raise bad_request(f"{said} without adapters", "lora")
        chosen, options = self._scales(asked), named.options
        for one, _ in chosen:
            options = options or one.options
            if one.options.model != options.model:
                own, other = public_name(one.options.model), public_name(options.model)
                raise bad_request(f"the adapter {one.id} is for {own}, not for {other}", "lora")
        return Wanted(options, chosen)

    @contextlib.asynccontextmanager
    async def use(
        self, wanted: Wanted, keep: KeepAlive | None = None
    ) -> AsyncIterator[AdaptedEngine]:
        """The engine that a request wants, as `EngineSlots.use`, with the adapters that it is to
        compute with. Those that the request names stay from now on, whatever is loaded or unloaded
        meanwhile; the usual ones are those of the model that answers, when it does.

        Raises:
            ApiError: 404 or 400, one that it names was unloaded.
            LocalspecError: as `EngineSlots.use`.
        """
        with contextlib.ExitStack() as holding:
            uses = self._uses(wanted)
            holding.enter_context(self._held.hold(uses))
            async with self._slots.use(wanted.options, keep) as engine:
                options = wanted.options or self._slots.options_of(engine)
                if uses is None:
                    uses = self._usual(options)
                    holding.enter_context(self._held.hold(uses))
                yield AdaptedEngine(engine, options, uses, holding)

    def _uses(self, wanted: Wanted) -> tuple[AdapterUse, ...] | None:
        """What a request names, as engines know it; None where it leaves that to the server."""
        if wanted.adapters is None:
            return None
        known = self._known
        for one, _ in wanted.adapters:
            if one.id not in known:
                said = f"the adapter {one.name} was unloaded meanwhile"
                raise no_such_model(said) if wanted.called else bad_request(said, "lora")
        return tuple(AdapterUse(one.key, scale) for one, scale in wanted.adapters)

    def _usual(self, options: Options) -> tuple[AdapterUse, ...] | None:
        """The usual adapters of a model; None where nothing was changed since the start."""
        if not self._changed:
            return None
        own = (one for one in self._known.values() if one.options.model == options.model)
        return tuple(AdapterUse(one.key, one.scale) for one in own if one.scale)

    def set(self, asked: Iterable[AdapterUse]) -> None:
        """Change the usual scales; 0 for those that are not named.

        Raises:
            ApiError: 400, there is none of a number, or one is named twice.
        """
        scales = {one.id: scale for one, scale in self._scales(asked)}
        for one in self._known.values():
            one.scale = scales.get(one.id, 0.0)
        self._changed = True

    def _scales(self, asked: Iterable[AdapterUse]) -> tuple[tuple[ServedAdapter, float], ...]:
        """The adapters of some numbers, and the scales for them."""
        known, found = self._known, dict[int, float]()
        for use in asked:
            number = int(use.path) if use.path.isdecimal() and len(use.path) < 10 else -1
            if number not in known:
                there = ", ".join(map(str, known)) or "none is loaded; see --lora"
                raise bad_request(f"there is no adapter {use.path[:20]}; ids: {there}", "lora")
            if number in found:
                raise bad_request(f"the adapter {number} is named twice", "lora")
            found[number] = use.scale
        return tuple((known[number], scale) for number, scale in found.items())

    async def load(self, name: str, path: str, *, again: bool) -> None:
        """Load a file of the folders under a new name; with ``again`` also in place of the one of
        that name, for requests to come. Needs the place of `changing`.

        Raises:
            ApiError: 403 outside of the folders, 404 without such a file, 400 for a name that is
                taken and for what is no adapter of the model.
            LocalspecError: the engine stopped.
        """
        file = self._allowed(path)
        known = self.named(name)
        if known is not None and not again:
            said = f"the adapter {name[:80]!r} is loaded already; load_inplace: true loads it"
            raise bad_request(f"{said} again", "lora_name")
        if known is not None and known.file != file:
            said = f"{name[:80]!r} was loaded from another file; unload it first"
            raise bad_request(said, "lora_path")
        if known is None and any(one.file == file for one in self._known.values()):
            raise bad_request("this file is loaded under another name", "lora_path")
        if known is None and len(self._known) >= MOST:
            raise bad_request(f"{MOST} adapters are loaded, which is the most; unload one")
        options = self._slots.options if known is None else known.options
        async with self._slots.use(options) as engine:
            assert engine.info is not None
            target = Path(engine.info.target)
            await asyncio.to_thread(_require_adapter, file, target)
            if known is not None and known.stays:
                await engine.adapter(known.key, known.path)  # refused, unless it is as it was
                return
            self._loads += 1
            key = f"{self._loads}:{file}"  # another one each time: requests that wait have theirs
            await engine.adapter(key, file)
            self._slots.adapters.add(options, key, file)
        if known is None:
            self._add(name, key, file, 0.0, options, stays=False)
        else:
            before, known.key = known.key, key
            await self._held.unload(options, before)

    async def unload(self, name: str) -> None:
        """Unload one that a request loaded. Its name is gone at once; its memory, once no reply
        uses it. Needs the place of `changing`.

        Raises:
            ApiError: 404, there is none of that name; 400, it is one of ``--lora``.
            LocalspecError: the engine stopped.
        """
        known = self.named(name)
        if known is None:
            said = f"the adapter {name[:80]!r} cannot be found"
            raise ApiError(HTTPStatus.NOT_FOUND, said, param="lora_name")
        if known.stays:
            said = f"{known.name} is one of --lora and stays; /lora-adapters sets its scale"
            raise bad_request(said, "lora_name")
        del self._added[known.id]
        await self._held.unload(known.options, known.key)

    def _allowed(self, path: str) -> Path:
        """The file that a path of a request names, links followed.

        Raises:
            ApiError: 403, it is not in a folder that requests may load from; 404, it is missing.
        """
        if not self._folders:
            raise ApiError(
                HTTPStatus.FORBIDDEN,
                "this server loads no adapters for requests; start it with --lora-folder FOLDER",
            )
        if "\0" in path:
            raise bad_request("lora_path is no path", "lora_path")
        try:
            tried = [(folder / path).resolve() for folder in self._folders]
        except (OSError, RuntimeError):
            raise bad_request("lora_path is no path", "lora_path") from None
        inside = [one for one in tried if any(one.is_relative_to(f) for f in self._folders)]
        if not inside:
            said = "lora_path is not in a folder of --lora-folder"
            raise ApiError(HTTPStatus.FORBIDDEN, said, param="lora_path")
        there = [one for one in inside if paths.exists(one)]
        for one in there:
            if one.is_file():
                return one
        if any(one.is_dir() for one in there):
            said = "lora_path is a folder; name a GGUF file, as convert_lora_to_gguf writes it"
            raise bad_request(said, "lora_path")
        said = "there is no such file in the folders of --lora-folder"
        raise ApiError(HTTPStatus.NOT_FOUND, said, param="lora_path")


def _require_adapter(file: Path, target: Path) -> None:
    """Refuse what is no adapter of the model.

    Raises:
        ApiError: 400, with the first thing that differs.
    """
    try:
        require_fitting(ModelFile(file), ModelFile(target))
    except (UsageError, ModelFileError) as error:
        raise bad_request(without_folders(error), "lora_path") from None
    except LocalspecError:
        raise bad_request(f"{file.name} cannot be read", "lora_path") from None
