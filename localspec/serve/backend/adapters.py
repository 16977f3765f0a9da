"""The LoRA adapters of a server: which there are, by number and by name, and their usual scales.

Requests name adapters and never files, but for `load`, which is for the folders that the server was
started with.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from localspec.core.adapter_list import MOST, AdapterUse
from localspec.core.async_places import AsyncPlaces
from localspec.core.errors import LocalspecError, ModelFileError, UsageError
from localspec.core.files import paths
from localspec.core.options import Options
from localspec.models.compat.adapters import require_fitting
from localspec.models.gguf.model_file import ModelFile
from localspec.serve.backend.engine_slots import EngineSlots
from localspec.serve.backend.held_adapters import HeldAdapters
from localspec.serve.backend.reporter import Reporter
from localspec.serve.http.errors import ApiError, bad_request, no_such_model, without_folders


@dataclass(slots=True)
class ServedAdapter:
    """One adapter."""

    id: int
    """llama-server's number of it, which no other one gets later."""
    name: str
    """By which a request may call it as a model."""
    key: str
    """The name that engines know what was loaded last by."""
    path: Path
    """Its file, as it was named."""
    file: Path
    """The same with links followed, when it was loaded."""
    scale: float
    """The scale where a request names none."""
    own: float
    """The scale of a request that calls it as a model."""
    options: Options
    """The model that it was loaded for."""


class ServedAdapters:
    """The adapters of ``--lora``, and of requests that loaded one, for one asyncio loop."""

    def __init__(
        self, slots: EngineSlots, reporter: Reporter, folders: Sequence[Path] = ()
    ) -> None:
        """Requests may load files of the ``folders``."""
        self._slots = slots
        self._held = HeldAdapters(slots, reporter)
        self._folders = tuple(folder.resolve() for folder in folders)
        self._known: dict[int, ServedAdapter] = {}
        self._next = self._loads = 0
        self.changing = AsyncPlaces(1)
        """The place of whoever loads or unloads one."""
        for adapter in slots.first.adapters:
            stem = adapter.path.stem
            name = stem if self.named(stem) is None else f"{stem}-{self._next}"
            self._add(name, str(adapter.path), adapter.path, adapter.scale, slots.first)
        self._changed = False
        """Whether the usual scales are no longer those of the start."""

    def _add(self, name: str, key: str, path: Path, scale: float, options: Options) -> None:
        found = name, key, path, path.resolve(), scale, scale or 1.0, options
        self._known[self._next] = ServedAdapter(self._next, *found)
        self._next += 1

    def listed(self) -> list[ServedAdapter]:
        """All, in the order of their numbers."""
        return [*self._known.values()]

    def named(self, name: str | None) -> ServedAdapter | None:
        """The one of that name, if there is one."""
        return next((one for one in self._known.values() if one.name == name), None)

    def uses(
        self,
        asked: Iterable[AdapterUse] | None,
        called: ServedAdapter | None,
        options: Options | None,
    ) -> tuple[AdapterUse, ...] | None:
        """The adapters of a request to the model of ``options``, None being the present one, as the
        engine knows them. It ``asked`` for them by number, or ``called`` one as its model; None
        where it leaves it to the server, and nothing was changed since the start.

        Raises:
            ApiError: 400, it does both, there is none of that number, or it names one twice; 404,
                the one that it called was unloaded since.
        """
        if called is not None:
            if called.id not in self._known:
                raise no_such_model(f"the adapter {called.name} was unloaded meanwhile")
            if asked is not None:
                said = f"model is the adapter {called.name} already; leave out lora, or name the"
                raise bad_request(f"{said} model without adapters", "lora")
            return (AdapterUse(called.key, called.own),)
        if asked is None:
            model = (options or self._slots.options).model
            own = (one for one in self._known.values() if one.options.model == model and one.scale)
            usual = tuple(AdapterUse(one.key, one.scale) for one in own)
            return usual if self._changed else None
        scales = self._scales(asked)
        return tuple(AdapterUse(self._known[n].key, scale) for n, scale in scales.items())

    @contextlib.contextmanager
    def hold(
        self,
        asked: Iterable[AdapterUse] | None,
        called: ServedAdapter | None,
        options: Options | None,
    ) -> Iterator[tuple[AdapterUse, ...] | None]:
        """The adapters of a request, as `uses` has them, which stay for a block, whatever is loaded
        or unloaded meanwhile.

        Raises:
            ApiError: as `uses`.
        """
        uses = self.uses(asked, called, options)
        with self._held.hold(uses):
            yield uses

    def label(self, uses: tuple[AdapterUse, ...] | None) -> str:
        """The names of adapters in a request, as the metrics have them."""
        names = {one.key: one.name for one in self._known.values()}
        return "+".join(sorted(names.get(use.path, "?") for use in uses or () if use.scale))

    def set(self, asked: Iterable[AdapterUse]) -> None:
        """Change the usual scales; 0 for those that are not named.

        Raises:
            ApiError: 400, there is none of a number, or one is named twice.
        """
        scales = self._scales(asked)
        for one in self._known.values():
            one.scale = scales.get(one.id, 0.0)
        self._changed = True

    def _scales(self, asked: Iterable[AdapterUse]) -> dict[int, float]:
        found: dict[int, float] = {}
        for use in asked:
            number = int(use.path) if use.path.isdecimal() and len(use.path) < 10 else -1
            if number not in self._known:
                there = ", ".join(map(str, self._known)) or "none is loaded; see --lora"
                raise bad_request(f"there is no adapter {use.path[:20]}; ids: {there}", "lora")
            if number in found:
                raise bad_request(f"the adapter {number} is named twice", "lora")
            found[number] = use.scale
        return found

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
            if known is not None and not self._requested(known):
                await engine.adapter(known.key, known.path)  # refused, unless it is as it was
                return
            self._loads += 1
            key = f"{self._loads}:{file}"  # another one each time: requests that wait have theirs
            await engine.adapter(key, file)
            self._slots.adapters.add(options, key, file)
        if known is None:
            self._add(name, key, file, 0.0, options)
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
        if not self._requested(known):
            said = f"{known.name} is one of --lora and stays; /lora-adapters sets its scale"
            raise bad_request(said, "lora_name")
        del self._known[known.id]
        await self._held.unload(known.options, known.key)

    def _requested(self, one: ServedAdapter) -> bool:
        """Whether a request loaded it."""
        return one.key in self._slots.adapters.of(one.options)

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
