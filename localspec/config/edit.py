"""Editing the user's config.toml; comments, order and unknown names stay."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from localspec.config import settings as config_settings
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files import paths, whole_file
from localspec.core.setting_spec import Value

Place = tuple[str, ...]
"""Names from the top down: ("temperature",) or ("presets", "brief", "system")."""


_PATIENCE_S = 10
"""Longest wait for another window that writes config.toml."""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Keep other processes, and threads of this one, from writing config.toml in between; where the
    file system has no locks, nothing does.

    Raises:
        LocalspecError: another process has been writing it for ten seconds.
    """
    import filelock

    place = paths.make(paths.state_dir()) / "config.lock"
    # One object a place: a thread that holds it takes it once more at once.
    lock = filelock.FileLock(place, mode=0o600, fallback_to_soft=False, is_singleton=True)
    try:
        lock.acquire(timeout=_PATIENCE_S)
    except filelock.Timeout:
        raise LocalspecError(
            f"another localspec has been writing config.toml for {_PATIENCE_S} s; "
            f"{place} is its lock"
        ) from None
    except OSError:  # a network file system without locks: as before there were any
        pass
    try:
        yield
    finally:
        lock.release()


def save(changes: Mapping[Place, Value]) -> Path:
    """Set values in config.toml, None removes one; returns the file.

    Raises:
        UsageError: the file is not valid TOML, or a table is needed where it has a value; it is
            not changed.
        LocalspecError: it cannot be written.
    """
    with alone():
        return _save(changes)


def _save(changes: Mapping[Place, Value]) -> Path:
    path = config_settings.file()
    settings = config_settings.read(path)
    wanted = _with(settings, changes)
    text = config_settings.read_text(path) if path.is_file() else ""
    new = _edited(text, changes, path)
    import tomllib

    # The file is written by hand: check that the edit gives what was asked for.
    if tomllib.loads(new) != wanted:
        raise UsageError(f"{path} is laid out in a way that cannot be edited here; edit it by hand")
    paths.make(path.parent)
    _replace(path, new)
    config_settings.settings.cache_clear()
    return path


def _edited(text: str, changes: Mapping[Place, Value], path: Path) -> str:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document: Any = tomlkit.parse(text)
        for (*tables, name), value in changes.items():
            table = document
            for key in tables:
                if key not in table:
                    if value is None:
                        break
                    table[key] = tomlkit.table()
                table = table[key]
            else:
                if value is not None:
                    table[name] = value
                elif name in table:
                    del table[name]
        return tomlkit.dumps(document)
    except (TOMLKitError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be edited: {error}") from None


def _with(settings: Mapping[str, object], changes: Mapping[Place, Value]) -> dict[str, object]:
    """The expected content after the edit."""
    found: dict[str, object] = dict(settings)
    for (first, *rest), value in changes.items():
        if rest:
            table = found.get(first, {})
            if not isinstance(table, dict):
                raise UsageError(f"{first} in config.toml is not a table")
            if value is not None or first in found:
                found[first] = _with(table, {tuple(rest): value})
        elif value is not None:
            found[first] = value
        else:
            found.pop(first, None)
    return found


def _replace(path: Path, text: str) -> None:
    """Replace the file in one step, through links: settings are often linked from dotfiles."""
    target = path.resolve()
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        whole_file.replace(target, [text.encode("utf-8")], mode=mode)
    except OSError as error:
        raise LocalspecError(f"cannot write {path}: {error.strerror or error}") from None
