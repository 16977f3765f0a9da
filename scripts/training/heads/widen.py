"""GGUF files with their numbers in float32: the same function, computed without rounding.

llama.cpp rounds what it multiplies a matrix with to the matrix's own precision, so a model's
arithmetic can be compared with another program's only where matrices are float32.

Needs gguf only.
"""

from __future__ import annotations

from pathlib import Path

import gguf
from gguf import GGUFValueType
from gguf.quants import dequantize

from heads.compose import value


def widen(source: Path, goal: Path) -> None:
    """Write a copy of the file with every tensor in float32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(goal, value(reader, "general.architecture"))
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        sub = field.types[1] if field.types[0] == GGUFValueType.ARRAY else None
        kept = field.contents() if field.name != "general.file_type" else gguf.LlamaFileType.ALL_F32
        writer.add_key_value(field.name, kept, field.types[0], sub_type=sub)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
