"""Checks of folders, settings, the catalogue, and the cache of models."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

from localspec.config import settings
from localspec.config.refused import refused
from localspec.core.errors import LocalspecError
from localspec.core.files import closed, paths
from localspec.core.units import size_text
from localspec.doctor.findings import Finding
from localspec.models.catalog.catalog import catalog, shipped
from localspec.models.catalog.hf_cache import PARTIAL_SUFFIX, cache_folder

_WRITABLE = "set LOCALSPEC_HOME to a folder that you may write to"
_REMEDY = re.compile(r"(.*?); (?:[^;]*: )?((?:chmod|set|use a folder) .*)")


def check(by_interface: Mapping[str, str]) -> Generator[Finding, None, bool]:
    """All of these checks; returns whether localspec's folders are writable. ``by_interface`` has
    the errors of settings that the interface refuses.
    """
    usable = True
    for name, folder in (
        ("config", paths.config_dir),
        ("data", paths.data_dir),
        ("state", paths.state_dir),
        ("cache", paths.cache_dir),
    ):
        finding = _folder(name, folder)
        usable = usable and finding.status == "ok"
        yield finding
    yield _settings(by_interface)
    yield _catalogue()
    yield from _models()
    return usable


def _folder(name: str, place: Callable[[], Path]) -> Finding:
    try:
        folder = place()
        closed.require(paths.make(folder))
        if not os.access(folder, os.W_OK | os.X_OK):
            return Finding(name, "broken", f"{folder} is not writable", _WRITABLE)
        free = shutil.disk_usage(folder).free
    except LocalspecError as error:
        return Finding(name, "broken", *_and_remedy(error, _WRITABLE))
    except OSError as error:
        return Finding(name, "broken", f"cannot use {error.filename}: {error.strerror}", _WRITABLE)
    text = f"{folder} ({size_text(free)} free on its disk)"
    return Finding(name, "ok", text, details={"folder": str(folder), "free": free})


def _and_remedy(error: LocalspecError, otherwise: str) -> tuple[str, str]:
    """What is wrong, and what mends it: the error's own remedy, where it has one."""
    found = _REMEDY.fullmatch(str(error))
    return (found[1], found[2]) if found else (str(error), otherwise)


def _settings(by_interface: Mapping[str, str]) -> Finding:
    try:
        path, count, unknown = settings.file(), len(settings.settings()), settings.unknown()
        wrong = {**refused(), **by_interface}
    except LocalspecError as error:
        return Finding("settings", "broken", *_and_remedy(error, "correct or delete config.toml"))
    if not count:
        return Finding("settings", "ok", f"none in {path}: defaults are used")
    fix = f"correct or delete these lines of {path}"
    if wrong:
        return Finding("settings", "broken", "; ".join([*wrong.values(), *unknown]), fix)
    if unknown:
        return Finding("settings", "note", f"{path}: {'; '.join(unknown)}", fix)
    return Finding("settings", "ok", f"{count} in {path}")


def _catalogue() -> Finding:
    try:
        pairs = catalog().values()
    except LocalspecError as error:
        shipped_one = str(shipped()) in str(error)
        fix = "install localspec again" if shipped_one else "correct or delete models.toml"
        return Finding("catalogue", "broken", *_and_remedy(error, fix))
    here = sum(pair.installed for pair in pairs)
    text = f"{len(pairs)} pairs, {here} of them on this machine"
    return Finding("catalogue", "ok", text, details={"pairs": len(pairs), "installed": here})


def _models() -> Iterator[Finding]:
    """The Hugging Face cache, shared with other programs."""
    folder = cache_folder()
    try:
        there = folder.is_dir()
    except OSError as error:
        fix = "set HF_HOME to a folder of your own"
        yield Finding("models", "broken", f"cannot look at {folder}: {error.strerror}", fix)
        return
    if not there:
        text = f"{folder}: not there yet, made by the first pull"
        yield Finding("models", "ok", text, details={"folder": str(folder), "bytes": 0})
        return
    whole, begun = _sizes(folder)
    text = f"{folder}: {size_text(whole)}"
    try:
        free = shutil.disk_usage(folder).free
        text += f" ({size_text(free)} free on its disk)"
    except OSError as error:
        text += f" (its disk cannot be asked: {error.strerror})"
    details = {"folder": str(folder), "bytes": whole, "unfinished": begun}
    if not os.access(folder, os.W_OK | os.X_OK):
        fix = "set HF_HOME to a folder that you may write to; downloaded models still work"
        yield Finding("models", "note", f"{text}, not writable", fix, details)
        return
    yield Finding("models", "ok", text, details=details)
    if begun:
        text = f"{size_text(begun)} of unfinished downloads in {folder}"
        yield Finding("models", "note", text, "`localspec pull` the same name to continue")


def _sizes(folder: Path) -> tuple[int, int]:
    """Bytes of whole files and of begun ones; links are not counted, nor what cannot be read."""
    whole = begun = 0
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            if path.is_symlink():
                continue
            try:
                n_bytes = path.stat().st_size
            except OSError:
                continue  # gone meanwhile: another program tidies up
            if name.endswith(PARTIAL_SUFFIX):
                begun += n_bytes
            else:
                whole += n_bytes
    return whole, begun
