"""llama.cpp's experimental calls: hidden states in and out of a pass.

They are C++ functions of a header that llama.cpp calls a staging ground (src/llama-ext.h), exported
under mangled names that differ between compilers, and may be missing in another build. They are
looked up once, here; nothing else in the package names them.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

from localspec.core.errors import UnsupportedModelError
from localspec.llama import library
from localspec.llama.library import c_api

_CONTEXT = "P13llama_context"


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one build of llama.cpp."""

    set_nextn: Any
    """(context, on, masked): keep the states that heads continue from; masked: of outputs only."""
    get_nextn: Any
    """(context): pointer to these states of the last pass, row by row."""
    set_nextn_offset: Any
    """(context, head): which of several multi-token-prediction layers the next passes run."""
    set_layer_input: Any
    """(context, layer, on): keep what enters a layer. Where the architecture does not publish it,
    the next pass aborts the process."""
    get_layer_input: Any
    """(context, layer): pointer to it, a row for every token of the last pass."""


@functools.cache
def calls() -> Calls | None:
    """The experimental calls; None where this build lacks one of them."""
    float_p, pointer = ctypes.POINTER(ctypes.c_float), c_api.llama_context_p_ctypes
    flag, u32, i32 = ctypes.c_bool, ctypes.c_uint32, ctypes.c_int32
    found = [
        _function("llama_set_embeddings_nextn", "bb", "_N1", [pointer, flag, flag], None),
        _function("llama_get_embeddings_nextn", "", "", [pointer], float_p),
        _function("llama_set_nextn_layer_offset", "i", "H", [pointer, i32], None),
        _function("llama_set_embeddings_layer_inp", "jb", "I_N", [pointer, u32, flag], None),
        _function("llama_get_embeddings_layer_inp", "j", "I", [pointer, u32], float_p),
    ]
    if any(function is None for function in found):
        return None
    return Calls(*found)


def required(what: str) -> Calls:
    """The experimental calls, for a drafter that cannot do without.

    Raises:
        UnsupportedModelError: this build has none.
    """
    found = calls()
    if found is None:
        raise UnsupportedModelError(
            f"{what} needs hidden states of the target, and this build of llama.cpp "
            f"(llama-cpp-python {library.version()}) does not give them"
        )
    return found


def _function(name: str, itanium: str, msvc: str, arguments: list[Any], result: Any) -> Any:
    """A C++ function by its name as GCC and Clang mangle it, as MSVC does, or unmangled."""
    returns = "X" if result is None else "PEAM"
    spellings = (
        f"_Z{len(name)}{name}{_CONTEXT}{itanium}",
        f"?{name}@@YA{returns}PEAUllama_context@@{msvc}@Z",
        name,
    )
    for spelling in spellings:
        function = getattr(c_api._lib, spelling, None)  # noqa: SLF001 - the loaded library
        if function is not None:
            function.argtypes, function.restype = arguments, result
            return function
    return None
