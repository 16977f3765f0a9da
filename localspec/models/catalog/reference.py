"""The one place that interprets a MODEL string: a pair of the catalogue, a path, or a Hub name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import ModelNotFoundError, UsageError
from localspec.core.files import paths
from localspec.models.catalog import hf_cache
from localspec.models.catalog.catalog import catalog
from localspec.models.catalog.links import HubRef, parse_hub_ref
from localspec.models.catalog.pair import Pair


@dataclass(frozen=True, slots=True)
class PairRef:
    """A pair of the catalogue, by name."""

    pair: Pair


@dataclass(frozen=True, slots=True)
class LocalRef:
    """A file, a folder, or the path of a ``.gguf`` file that does not exist."""

    path: Path
    same_on_hub: HubRef | None
    """The Hub model that the same text names; commands that need the Hub use it where ``path`` is
    not a file.
    """


ModelRef = PairRef | LocalRef | HubRef


def reference(name: str) -> ModelRef:
    """Interpret a MODEL string.

    The catalogue comes first, then what exists on disk, then the Hub. A text that ends in ``.gguf``
    and may be a repository is a missing file, unless the cache knows that repository.

    Raises:
        UsageError: the name is empty, or the catalogue cannot be read.
        ModelNotFoundError: the name can be none of these; the message suggests similar names.
    """
    if not name.strip():
        raise UsageError("the model's name is empty; `localspec models` lists all models")
    pair = catalog().get(name)
    if pair is not None:
        return PairRef(pair)
    path, hub = paths.expand(name), parse_hub_ref(name)
    if paths.exists(path):
        return LocalRef(path, hub)
    if name.endswith(".gguf") and not (hub is not None and _is_repo(name, hub)):
        return LocalRef(path, hub)
    if hub is None:
        raise _unknown(name)
    return hub


def _is_repo(name: str, hub: HubRef) -> bool:
    """Whether a text that ends in ``.gguf`` names a Hub model and not a missing file."""
    return ":" in name or bool(hf_cache.snapshots(hub.repo))


def on_hub(ref: ModelRef) -> HubRef | None:
    """The Hub model that a reference names outside the catalogue; None for a file or a pair."""
    match ref:
        case HubRef():
            return ref
        case LocalRef(path, same_on_hub):
            return None if path.is_file() else same_on_hub
        case PairRef():
            return None


def require_on_hub(name: str, ref: ModelRef) -> HubRef:
    """The result of `on_hub`, for commands that can only use the Hub.

    Raises:
        ModelNotFoundError: the reference names no Hub model.
    """
    found = on_hub(ref)
    if found is None:
        raise _unknown(name)
    return found


def _unknown(name: str) -> ModelNotFoundError:
    """The error for a name without meaning, with the three closest names of the catalogue."""
    close = difflib.get_close_matches(name, catalog(), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "`localspec models` lists all"
    return ModelNotFoundError(f"no model called {name!r}; {hint}")
