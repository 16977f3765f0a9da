"""Control vectors: whether a file is one, and fits a model, before anything is loaded.

As llama.cpp's ``common_control_vector_load`` has it: tensors ``direction.N`` of as many float32
numbers as the model's states have, which are added to the output of layer N (Vogel 2024, "repeng").
"""

from __future__ import annotations

import re

from localspec.core.errors import UsageError
from localspec.models.gguf.model_file import ModelFile

DIRECTION = re.compile(r"direction\.([1-9][0-9]{0,4})")
_F32 = 0


def require_fitting(vector: ModelFile, target: ModelFile) -> None:
    """Refuse a control vector that is none, or of another model.

    Raises:
        ModelNotFoundError, ModelFileError: there is none, it is damaged, or no GGUF.
        UsageError: it is something else, or of another model; with the first thing that differs.
    """
    header, name = vector.header, vector.name
    if header.architecture != "controlvector":
        raise UsageError(f"{name} is no control vector but of the kind {header.architecture}")
    of = target.header
    width, layers = of.of_model("embedding_length"), of.of_model("block_count")
    if not header.tensors:
        raise UsageError(f"{name} has no directions")
    for tensor in header.tensors:
        match = DIRECTION.fullmatch(tensor.name)
        if match is None:
            raise UsageError(f"{name} has the tensor {tensor.name}, which no control vector has")
        if tensor.ggml_type != _F32:
            raise UsageError(f"{tensor.name} of {name} is not of float32 numbers")
        if tensor.shape != (width,):
            shape = "x".join(map(str, tensor.shape))
            raise UsageError(
                f"{tensor.name} of {name} has {shape} numbers, and the states of {target.name} "
                f"have {width}: it is of another model"
            )
        if layers is not None and int(match[1]) >= layers:
            raise UsageError(
                f"{name} is for layer {match[1]}, and {target.name} has the layers 0 to "
                f"{layers - 1}: it is of another model"
            )
