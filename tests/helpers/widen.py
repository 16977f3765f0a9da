"""GGUF files with their numbers in float32: the same function, computed without rounding.

llama.cpp rounds what it multiplies a matrix with to the matrix's own precision, so a model's
arithmetic can be compared with another program's only where matrices are float32.

Needs gguf only.
"""

from __future__ import annotations

from pathlib import Path

import gguf
from demo.files import copy_keys, finish, value
from gguf.quants import dequantize


def widen(source: Path, goal: Path) -> None:
    """Write a copy of the file with every tensor in float32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(goal, value(reader, "general.architecture"))
    copy_keys(reader, writer, {"general.file_type": gguf.LlamaFileType.ALL_F32})
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type))
    finish(writer)
