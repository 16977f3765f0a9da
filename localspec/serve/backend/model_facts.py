"""What the headers of model files say, for lists of models: read once for each, in a thread."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.core.errors import LocalspecError
from localspec.core.options import NO_DRAFT, NO_PROJECTOR, Options

if TYPE_CHECKING:
    from localspec.models.gguf.header import Header

_MOST = 256
"""Files whose facts are kept."""
_SCALARS = (str, int, float, bool)
_LONGEST = 4096
"""Characters of a text of the metadata that is told."""
_MARKS = {
    ("fim_pre", "prefix"): "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE>"
    " <|code_prefix|> <|prefix|>",
    ("fim_suf", "suffix"): "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF>"
    " <|code_suffix|> <|suffix|>",
    ("fim_mid", "middle"): "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID>"
    " <|code_middle|> <|middle|>",
}
"""Keys and names of the tokens before a gap, behind it and in it, as llama-vocab.cpp has them."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model on disk."""

    family: str
    """Its architecture."""
    parameters: int
    quantization: str
    n_bytes: int
    """Bytes of all files of the target."""
    modified: float
    """Seconds since 1970."""
    digest: str
    """SHA-256 of the file where the Hub has told it, else of its name, size and time."""
    template: str
    """The chat template; "" without one."""
    licence: str
    metadata: Mapping[str, Any]
    """Single values of the header; arrays, such as the vocabulary, are None."""
    thinks: bool
    sees: bool
    fills: bool
    """Whether its vocabulary has marks for a text with a gap."""

    @property
    def size_name(self) -> str:
        """The number of parameters as people write it: 8.0B, 494.03M."""
        if self.parameters >= 1e9:
            return f"{self.parameters / 1e9:.1f}B"
        return f"{self.parameters / 1e6:.2f}M"


async def facts_of(options: Options) -> ModelFacts | None:
    """The facts of the model of some options; None where its files cannot be read."""
    return await asyncio.to_thread(_facts_of, options)


def _facts_of(options: Options) -> ModelFacts | None:
    from localspec.models.catalog.resolve import resolve

    try:
        path = resolve(options.model, NO_DRAFT).target.path
        state = path.stat()
        return _read(path, state.st_size, state.st_mtime_ns, options.mmproj)
    except (LocalspecError, OSError):  # loading it says what is wrong
        return None


@functools.lru_cache(_MOST)
def _read(path: Path, size: int, modified: int, mmproj: str | None) -> ModelFacts:
    """The facts of a file of that size, which was changed last at that time in nanoseconds."""
    from localspec.grammar.thinking import markers
    from localspec.models.catalog.projectors import find_projector, senses
    from localspec.models.gguf.header import read_opening
    from localspec.models.gguf.model_file import ModelFile

    file = ModelFile(path)
    header = file.header
    beside = find_projector(header, path) if mmproj is None else Path(mmproj)
    sees = mmproj != NO_PROJECTOR and beside is not None and senses(read_opening(beside)).sees
    return ModelFacts(
        family=header.architecture,
        parameters=sum(math.prod(tensor.shape) for tensor in header.tensors),
        quantization=_quantization(file),
        n_bytes=file.n_bytes,
        modified=modified / 1e9,
        digest=_digest(path, size, modified),
        template=header.template or "",
        licence=header.licence or "",
        metadata={key: _told(value) for key, value in header.metadata.items()},
        thinks=bool(markers(header.template)),
        sees=sees,
        fills=_fills(header),
    )


def _fills(header: Header) -> bool:
    """Whether a model has the marks of a gap, found as llama.cpp does: by keys of the file, else by
    their usual names.
    """
    n, tokens = header.n_vocab, frozenset(header.tokens)

    def has(keys: tuple[str, ...], names: str) -> bool:
        ids = [header.integer(f"tokenizer.ggml.{key}_token_id") for key in keys]
        usual = (name.encode() for name in names.split())
        return any(i is not None and 0 <= i < n for i in ids) or not tokens.isdisjoint(usual)

    return all(has(keys, names) for keys, names in _MARKS.items())


def _told(value: object) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, _SCALARS) else None


def _quantization(file: Any) -> str:
    """As the name of the file says it, else the type of most of its weights."""
    from localspec.models.catalog.file_names import quantization
    from localspec.models.gguf.ggml_types import type_name

    named: str | None = quantization(file.path.stem)
    if named is not None:
        return named
    weights: dict[int, int] = {}
    for tensor in file.header.tensors:
        weights[tensor.ggml_type] = weights.get(tensor.ggml_type, 0) + tensor.n_bytes
    return type_name(max(weights, key=lambda kind: weights[kind])) if weights else "unknown"


def _digest(path: Path, size: int, modified: int) -> str:
    from localspec.models.catalog import hf_cache

    known = hf_cache.etag(path)
    if len(known) == 64 and hf_cache.is_hash(known):
        return known
    return hashlib.sha256(f"{path.name} {size} {modified}".encode()).hexdigest()
