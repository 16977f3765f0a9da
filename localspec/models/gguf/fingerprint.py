"""Fingerprints of model files, without reading gigabytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from localspec.models.gguf.shards import shards

_HEAD = 1 << 20
_SAMPLE = 1 << 12
_SAMPLES = 64


def fingerprint(path: Path) -> str:
    """Hash of the size, the first megabyte and 64 samples of the rest of each file of a model.

    The header identifies the model, the samples distinguish its fine-tunes. All shards count, since
    the first may hold metadata alone. Not for security: bytes between the samples are not covered.

    Raises:
        OSError: one of the files cannot be read.
    """
    files = [_file_hash(file) for file in shards(path)]
    return files[0] if len(files) == 1 else hashlib.sha256("".join(files).encode()).hexdigest()[:32]


def _file_hash(path: Path) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_HEAD))
        rest = size - _HEAD - _SAMPLE
        if rest > 0:
            for i in range(_SAMPLES):
                file.seek(_HEAD + rest * i // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()[:32]
