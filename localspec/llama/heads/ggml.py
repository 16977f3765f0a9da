"""The calls of ggml that compute small graphs of our own, next to llama.cpp's.

llama-cpp-python ships the libraries without bindings for these. They are looked up once, here; a
build that lacks one of them has none.
"""

from __future__ import annotations

import ctypes
import functools
from types import SimpleNamespace
from typing import Any

from localspec.llama import library

F32 = 0
"""GGML_TYPE_F32."""
CPU, GPU, INTEGRATED_GPU = 0, 1, 2
"""Kinds of devices (enum ggml_backend_dev_type)."""

_P, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class InitParams(ctypes.Structure):
    """ggml_init_params."""

    _fields_ = (("mem_size", _SIZE), ("mem_buffer", _P), ("no_alloc", ctypes.c_bool))


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "ggml_init": (_P, [InitParams]),
    "ggml_free": (None, [_P]),
    "ggml_tensor_overhead": (_SIZE, []),
    "ggml_graph_overhead_custom": (_SIZE, [_SIZE, ctypes.c_bool]),
    "ggml_nbytes": (_SIZE, [_P]),
    "ggml_new_tensor_1d": (_P, [_P, _INT, ctypes.c_int64]),
    "ggml_new_tensor_2d": (_P, [_P, _INT, ctypes.c_int64, ctypes.c_int64]),
    "ggml_mul_mat": (_P, [_P, _P, _P]),
    "ggml_add": (_P, [_P, _P, _P]),
    "ggml_silu": (_P, [_P, _P]),
    "ggml_concat": (_P, [_P, _P, _P, _INT]),
    "ggml_set_input": (None, [_P]),
    "ggml_set_output": (None, [_P]),
    "ggml_new_graph_custom": (_P, [_P, _SIZE, ctypes.c_bool]),
    "ggml_build_forward_expand": (None, [_P, _P]),
    "ggml_gallocr_new": (_P, [_P]),
    "ggml_gallocr_free": (None, [_P]),
    "ggml_gallocr_alloc_graph": (ctypes.c_bool, [_P, _P]),
    "ggml_backend_dev_by_type": (_P, [_INT]),
    "ggml_backend_dev_init": (_P, [_P, ctypes.c_char_p]),
    "ggml_backend_dev_supports_op": (ctypes.c_bool, [_P, _P]),
    "ggml_backend_dev_backend_reg": (_P, [_P]),
    "ggml_backend_reg_get_proc_address": (_P, [_P, ctypes.c_char_p]),
    "ggml_backend_get_default_buffer_type": (_P, [_P]),
    "ggml_backend_alloc_ctx_tensors": (_P, [_P, _P]),
    "ggml_backend_buffer_free": (None, [_P]),
    "ggml_backend_tensor_set": (None, [_P, _P, _SIZE, _SIZE]),
    "ggml_backend_tensor_get": (None, [_P, _P, _SIZE, _SIZE]),
    "ggml_backend_graph_compute": (_INT, [_P, _P]),
    "ggml_backend_free": (None, [_P]),
}


@functools.cache
def calls() -> Any | None:
    """The functions by name, without their ``ggml_``; None where this build lacks one."""
    library.start()
    found = {}
    for name, (result, arguments) in _SIGNATURES.items():
        if not hasattr(library.libggml, name):
            library.logger.warning("this build of ggml lacks %s", name)
            return None
        found[name.removeprefix("ggml_")] = library.ggml_function(name, result, *arguments)
    return SimpleNamespace(**found)


def set_threads(device: Any, backend: Any, threads: int) -> None:
    """Compute on so many threads, where the device has such a setting."""
    ggml = calls()
    assert ggml is not None  # there is a backend
    address = ggml.backend_reg_get_proc_address(
        ggml.backend_dev_backend_reg(device), b"ggml_backend_set_n_threads"
    )
    if address:
        ctypes.CFUNCTYPE(None, _P, _INT)(address)(backend, threads)
