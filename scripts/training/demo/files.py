"""What all GGUF files that are written here have in common. Needs numpy and gguf only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFValueType


def value(reader: gguf.GGUFReader, key: str) -> Any:
    """The value of a key.

    Raises:
        ValueError: there is no such key.
    """
    field = reader.get_field(key)
    if field is None:
        raise ValueError(f"no key {key}")
    return field.contents()


def copy_keys(
    reader: gguf.GGUFReader,
    writer: gguf.GGUFWriter,
    changed: Mapping[str, object] | None = None,
    named: Callable[[str], str] = lambda name: name,
    only: str = "",
) -> None:
    """Copy all keys, or those that begin with ``only``, but for the architecture, which a writer has;
    some with other values, under names that ``named`` makes.
    """
    for field in reader.fields.values():
        name = field.name
        if name.startswith("GGUF.") or name == "general.architecture" or not name.startswith(only):
            continue
        sub = field.types[1] if field.types[0] == GGUFValueType.ARRAY else None
        kept = (changed or {}).get(name, field.contents())
        writer.add_key_value(named(name), kept, field.types[0], sub_type=sub)


def put(writer: gguf.GGUFWriter, tensor: gguf.ReaderTensor, data: np.ndarray, name: str) -> None:
    """Add a tensor with the stored bytes of another file."""
    writer.add_tensor(name, np.ascontiguousarray(data), raw_dtype=tensor.tensor_type)


def put_as(writer: gguf.GGUFWriter, name: str, data: np.ndarray, kind: Kind) -> None:
    """Add a tensor of numbers, matrices of that type. Vectors and single rows stay as they are."""
    chosen = kind if data.ndim > 1 and data.shape[-2] > 1 else Kind.F32
    writer.add_tensor(name, gguf.quants.quantize(data, chosen), raw_dtype=chosen)


def finish(writer: gguf.GGUFWriter, partial: Path | None = None, out: Path | None = None) -> None:
    """Write all of it; the file appears under its name only once it is whole, if that is another."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if partial is not None and out is not None:
        partial.replace(out)
