"""Names of models that mean the same in every folder."""

from __future__ import annotations

from localspec.core.errors import LocalspecError
from localspec.core.files import paths


def portable(name: str | None) -> str | None:
    """A MODEL string that means the same in any folder: paths become absolute."""
    if not name:
        return None
    path = paths.expand(name)
    if not (paths.is_file(path) or paths.is_dir(path)):
        return name
    # Every start of the chat comes here, and hardly ever needs the catalogue.
    from localspec.models.catalog.reference import LocalRef, reference

    try:
        is_path = isinstance(reference(name), LocalRef)
    except LocalspecError:  # loading the model reports an unreadable catalogue
        is_path = True
    return str(path.resolve()) if is_path else name
