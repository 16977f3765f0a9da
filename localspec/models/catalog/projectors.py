"""Projectors: the encoders of pictures beside their models, as repositories hold them (mmproj)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from localspec.models.catalog.file_names import common_prefix
from localspec.models.gguf.header import Header, read_opening

ARCHITECTURE = "clip"
"""``general.architecture`` of the files."""
_UNSUPPORTED = frozenset({"hunyuanvl", "deepseek4v"})
"""Kinds whose rows depend on where in the prompt a picture stands."""
_FAMILIES = {
    "qwen2vl_merger": "qwen2vl",
    "qwen2.5vl_merger": "qwen2vl",
    "qwen3vl_merger": "qwen3",
    "gemma3": "gemma3",
    "llama4": "llama4",
}
"""Kinds that belong to one family -> how the names of its architectures begin."""


def find_projector(target: Header, path: Path) -> Path | None:
    """The projector in the folder of a target, or next to the file that it links to; None without
    one. Of several, the one whose name is most like the target's.
    """
    folders = dict.fromkeys((path.parent, path.resolve().parent))
    for folder in folders:
        found = [
            file
            for file in sorted(folder.glob("*.gguf"))
            if _is_of_family(target, opening := read_opening(file))
            and not why_useless(target, opening)
        ]
        if found:
            return min(found, key=lambda file: (-_alike(file.name, path.name), file.name))
    return None


def _is_of_family(target: Header, opening: Mapping[str, object]) -> bool:
    """Whether a file that nobody named may be the target's: other models have its width too."""
    return target.architecture.startswith(_FAMILIES.get(kind(opening), ""))


def require_projector(path: Path) -> Path:
    """A projector that the user named.

    Raises:
        ModelNotFoundError: there is no such file.
        ModelFileError: it is no projector, or of a kind that is not supported.
    """
    if not path.is_file():
        raise ModelNotFoundError(f"there is no projector {path}")
    opening = read_opening(path)
    if not is_projector(path):
        raise ModelFileError(f"{path.name} is no projector (mmproj file); name one with --mmproj")
    why = _unsupported(opening)
    if why:
        raise UnsupportedModelError(f"{path.name} {why}")
    return path


def is_projector(path: Path) -> bool:
    """Whether a file is a projector, by the beginning of its header."""
    return read_opening(path).get("general.architecture") == ARCHITECTURE


def why_useless(target: Header, opening: Mapping[str, object]) -> str:
    """Why a target cannot see with a file, by the beginning of its header; empty if it can."""
    if opening.get("general.architecture") != ARCHITECTURE:
        return "is no projector"
    if why := _unsupported(opening):
        return why
    found = senses(opening)
    if not (found.sees or found.hears):
        return "has no encoder of pictures or sounds"
    width = target.metadata.get(f"{target.architecture}.embedding_length")
    made = opening.get(f"clip.{'vision' if found.sees else 'audio'}.projection_dim")
    if width is None or made in {None, width} or kind(opening).startswith("qwen3vl"):
        return ""
    return f"makes rows of {made} numbers, and {target.name} has {width}"


@dataclass(frozen=True, slots=True)
class Senses:
    """What a projector encodes."""

    sees: bool
    hears: bool


def senses(opening: Mapping[str, object]) -> Senses:
    """What a projector encodes, by the beginning of its header."""
    return Senses(
        bool(opening.get("clip.has_vision_encoder", False)),
        bool(opening.get("clip.has_audio_encoder", False)),
    )


def kind(opening: Mapping[str, object]) -> str:
    """The kind of a projector, as llama.cpp calls it."""
    keys = ("clip.vision.projector_type", "clip.projector_type", "clip.audio.projector_type")
    return str(next((opening[key] for key in keys if opening.get(key)), "mlp"))


def _unsupported(opening: Mapping[str, object]) -> str:
    if kind(opening) in _UNSUPPORTED:
        return (
            f"is of the kind {kind(opening)}, whose pictures depend on their place in the prompt; "
            "localspec cannot read those yet"
        )
    return ""


def _alike(one: str, other: str) -> int:
    """Characters that two names have in common at their beginning, whatever says mmproj."""
    one, other = (name.lower().replace("mmproj", "").strip("-_.") for name in (one, other))
    return common_prefix(one, other)
