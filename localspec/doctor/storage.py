"""Checks of folders, settings, the catalogue, and the cache of models."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

from localspec.config import settings
from localspec.core.errors import LocalspecError
from localspec.core.files import closed, paths
from localspec.core.units import size_text
from localspec.doctor.findings import Finding
from localspec.models.catalog.catalog import catalog
from localspec.models.catalog.hf_cache import PARTIAL_SUFFIX, cache_folder

_WRITABLE = "set LOCALSPEC_HOME to a folder that you may write to"


def check() -> Generator[Finding, None, bool]:
    """All of these checks; returns whether localspec's folders are writable."""
    usable = True
    for name, folder in (
        ("config", paths.config_dir()),
        ("data", paths.data_dir()),
        ("state", paths.state_dir()),
        ("cache", paths.cache_dir()),
    ):
        finding = _folder(name, folder)
        usable = usable and finding.status == "ok"
        yield finding
    yield _settings()
    yield _catalogue()
    yield from _models()
    return usable


def _folder(name: str, folder: Path) -> Finding:
    try:
        closed.require(paths.make(folder))
        if not os.access(folder, os.W_OK | os.X_OK):
            return Finding(name, "broken", f"{folder} is not writable", _WRITABLE)
        free = shutil.disk_usage(folder).free
    except LocalspecError as error:
        text, _, fix = str(error).partition("; ")
        return Finding(name, "broken", text, fix or _WRITABLE)
    except OSError as error:
        return Finding(name, "broken", f"cannot use {folder}: {error.strerror}", _WRITABLE)
    text = f"{folder} ({size_text(free)} free on its disk)"
    return Finding(name, "ok", text, details={"folder": str(folder), "free": free})


def _settings() -> Finding:
    path = settings.file()
    try:
        count, unknown = len(settings.settings()), settings.unknown()
    except LocalspecError as error:
        text, _, fix = str(error).partition("; forbid it: ")
        return Finding("settings", "broken", text, fix or f"correct or delete {path}")
    if not count:
        return Finding("settings", "ok", f"none in {path}: defaults are used")
    if unknown:
        text, fix = f"{path}: {'; '.join(unknown)}", f"correct or delete these lines of {path}"
        return Finding("settings", "note", text, fix)
    return Finding("settings", "ok", f"{count} in {path}")


def _catalogue() -> Finding:
    try:
        pairs = catalog().values()
    except LocalspecError as error:
        own = paths.config_dir() / "models.toml"
        fix = f"correct or delete {own}" if str(own) in str(error) else "install localspec again"
        return Finding("catalogue", "broken", str(error), fix)
    here = sum(pair.installed for pair in pairs)
    text = f"{len(pairs)} pairs, {here} of them on this machine"
    return Finding("catalogue", "ok", text, details={"pairs": len(pairs), "installed": here})


def _models() -> Iterator[Finding]:
    """The Hugging Face cache, shared with other programs."""
    folder = cache_folder()
    if not folder.is_dir():
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
