"""The interface `tui`: beside `localspec` in the repository, inside it in an installation.

There is no package `tui` at the top of an installation, where it would lie beside everybody else's;
within this process it has that name all the same. localspec must not import it: the command line
asks for its modules by name.

Whether its race was shown to this user is noted here too, for the commands that begin with it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from localspec.config import settings
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files import paths

_NAME = "tui"
_OWN_CHECKS = (("keys", "input.keymap", "overrides"), ("theme", "terminal.theme", "wanted"))
"""Settings of the interface alone: their names, and the module and function that read them."""
_RACE_SHOWN = "race-shown"
"""Name of an empty file in the folder of state."""


def module(name: str) -> Any:
    """A module of the interface by its name in `tui`, from the folder that belongs to this code.

    Raises:
        ImportError: the installation lacks it.
    """
    if _NAME not in sys.modules:
        _register(_folder())
    return importlib.import_module(f"{_NAME}.{name}")


def _folder() -> Path:
    package = Path(__file__).resolve().parents[1]
    inside = package / _NAME
    return inside if inside.is_dir() else package.parent / _NAME


def _register(folder: Path) -> None:
    """Import the package from its folder, whatever else of that name is on the path."""
    spec = importlib.util.spec_from_file_location(
        _NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} has no interface; install localspec again")
    package: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = package
    try:
        spec.loader.exec_module(package)
    except BaseException:
        del sys.modules[_NAME]
        raise


def refused() -> dict[str, str]:
    """The errors of config.toml's keys and theme, which only the interface can check, by the name
    of the setting. An installation without Textual has none, nor has a file that cannot be read:
    other findings of `localspec doctor` are about those.
    """
    errors: dict[str, str] = {}
    with contextlib.suppress(ImportError, LocalspecError):
        found = settings.settings()
        for name, place, check in _OWN_CHECKS:
            if name in found:
                try:
                    getattr(module(place), check)(found)
                except UsageError as error:
                    errors[name] = str(error)
    return errors


def note_race() -> bool:
    """Note that the race is shown now; whether that was noted for the first time.

    False also where it cannot be noted: a first chat would begin with the race every time.
    """
    file = paths.state_dir() / _RACE_SHOWN
    try:
        if file.exists():
            return False
        paths.make(file.parent)
        file.touch()
    except (OSError, LocalspecError):
        return False
    return True
