"""From what the person typed to files on disk."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import ModelNotFoundError, UsageError
from localspec.pairs.catalog import catalog

_HUB = re.compile(r"^(hf\.co/|huggingface\.co/|hf://)?[\w.-]+/[\w.-]+(:[\w.-]+)?$")
NO_DRAFT = "none"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The files that a name stands for."""

    name: str
    target: Path
    draft: Path | None
    always_draft: int | None = None


def resolve(model: str, draft: str | None) -> Resolved:
    """Find the files of ``model``; ``draft`` overrides its draft, "none" leaves it out.

    Raises:
        UsageError: an empty name.
        ModelNotFoundError: no such name or file, or not on this machine.
    """
    target, own_draft = _find(model)
    if draft is None:
        pair = catalog().get(model)
        return Resolved(model, target, own_draft, pair.always_draft if pair else None)
    if draft == NO_DRAFT:
        return Resolved(model, target, None)
    return Resolved(model, target, _find(draft, draft=True)[0])


def _find(name: str, *, draft: bool = False) -> tuple[Path, Path | None]:
    if not name.strip():
        raise UsageError("the model's name is empty; `localspec models` lists what there is")
    pairs = catalog()
    if name in pairs:
        pair = pairs[name]
        # A pair named as a draft lends its smaller model.
        chosen = pair.draft if draft and pair.draft is not None else pair.target
        if not chosen.is_file():
            raise ModelNotFoundError(f"the files of {name!r} are not here: {chosen} is missing")
        return chosen, None if draft else pair.draft
    path = Path(name).expanduser()
    if name.endswith(".gguf") or path.exists():
        return path, None
    if _HUB.match(name):
        raise ModelNotFoundError(
            f"{name} is not on this machine, and this version cannot pull yet; download the "
            ".gguf file and give its path"
        )
    close = difflib.get_close_matches(name, pairs, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "`localspec models` lists all"
    raise ModelNotFoundError(f"no model called {name!r}; {hint}")
