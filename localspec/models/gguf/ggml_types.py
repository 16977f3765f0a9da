"""Block sizes of the ggml types.

The ``gguf`` package has the same table, but many dependencies; a test compares this table with
llama.cpp.
"""

from __future__ import annotations

import math

BLOCKS: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
    42: ("Q2_0", 64, 18),
}
"""For each ggml type: its name, weights in a block, bytes in a block."""

TYPES = {name: ggml_type for ggml_type, (name, _, _) in BLOCKS.items()}
"""The types by name."""
MULTIPLIED = frozenset(name for name, _, _ in BLOCKS.values()) - frozenset(
    {"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"}
)
"""Names of the types that matrices of a matrix product can have in ggml."""


def type_name(ggml_type: int) -> str:
    """Name of a type: ``Q4_K`` for 12; ``type 99`` for an unknown one."""
    return BLOCKS[ggml_type][0] if ggml_type in BLOCKS else f"type {ggml_type}"


def tensor_bytes(ggml_type: int, shape: tuple[int, ...]) -> int | None:
    """Bytes of a tensor, whose blocks lie along the first dimension; None for an unknown type."""
    if ggml_type not in BLOCKS:
        return None
    _, block, size = BLOCKS[ggml_type]
    return math.ceil(shape[0] / block) * size * math.prod(shape[1:])
