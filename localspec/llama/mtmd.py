"""The functions of libmtmd that are used here, as its header declares them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_bool, c_char_p, c_float, c_int, c_int32, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

from localspec.core.errors import LocalspecError
from localspec.core.files import native
from localspec.llama import library

TEXT, IMAGE = 0, 1
"""Types of chunks; those of sounds are 2."""


class ContextParams(ctypes.Structure):
    """``mtmd_context_params``."""

    _fields_ = (
        ("use_gpu", c_bool),
        ("device", c_void_p),
        ("print_timings", c_bool),
        ("n_threads", c_int),
        ("image_marker", c_char_p),
        ("media_marker", c_char_p),
        ("flash_attn_type", c_int),
        ("warmup", c_bool),
        ("image_min_tokens", c_int),
        ("image_max_tokens", c_int),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("batch_max_tokens", c_int32),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
    )


class InputText(ctypes.Structure):
    """``mtmd_input_text``."""

    _fields_ = (
        ("text", c_char_p),
        ("text_len", c_size_t),
        ("add_special", c_bool),
        ("parse_special", c_bool),
    )


class DecoderPos(ctypes.Structure):
    """``mtmd_decoder_pos``."""

    _fields_ = tuple((name, c_uint32) for name in "txyz")


_P, _TOKENS = c_void_p, ctypes.POINTER(c_int32)
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "mtmd_context_params_default": (ContextParams, ()),
    "mtmd_init_from_file": (_P, (c_char_p, _P, ContextParams)),
    "mtmd_free": (None, (_P,)),
    "mtmd_decode_use_non_causal": (c_bool, (_P, _P)),
    "mtmd_decode_use_mrope": (c_bool, (_P,)),
    "mtmd_support_vision": (c_bool, (_P,)),
    "mtmd_get_audio_sample_rate": (c_int, (_P,)),
    "mtmd_bitmap_init": (_P, (c_uint32, c_uint32, c_char_p)),
    "mtmd_bitmap_init_from_audio": (_P, (c_size_t, c_char_p)),
    "mtmd_bitmap_free": (None, (_P,)),
    "mtmd_input_chunks_init": (_P, ()),
    "mtmd_input_chunks_size": (c_size_t, (_P,)),
    "mtmd_input_chunks_get": (_P, (_P, c_size_t)),
    "mtmd_input_chunks_free": (None, (_P,)),
    "mtmd_input_chunk_get_type": (c_int, (_P,)),
    "mtmd_input_chunk_get_tokens_text": (_TOKENS, (_P, ctypes.POINTER(c_size_t))),
    "mtmd_input_chunk_get_tokens_image": (_P, (_P,)),
    "mtmd_input_chunk_get_n_tokens": (c_size_t, (_P,)),
    "mtmd_input_chunk_get_n_pos": (c_int32, (_P,)),
    "mtmd_image_tokens_get_decoder_pos": (DecoderPos, (_P, c_int32, c_size_t)),
    "mtmd_tokenize": (
        c_int32,
        (_P, _P, ctypes.POINTER(InputText), ctypes.POINTER(c_void_p), c_size_t),
    ),
    "mtmd_encode_chunk": (c_int32, (_P, _P)),
    "mtmd_get_output_embd": (ctypes.POINTER(c_float), (_P,)),
    "mtmd_log_set": (None, (_P, _P)),
}


class Mtmd:
    """The library, opened by the one door to native code."""

    def __init__(self, path: Path) -> None:
        """Open it; llama.cpp logs for it too.

        Raises:
            LocalspecError: it is not to be trusted, or does not load.
        """
        library.start()
        self._library = native.opened(path, ctypes.CDLL)
        self._functions: dict[str, Callable[..., Any]] = {}
        for name, (result, arguments) in _SIGNATURES.items():
            try:
                function = self._library[name]
            except AttributeError:
                raise LocalspecError(f"{path} lacks {name}; delete {path.parent}") from None
            function.restype, function.argtypes = result, list(arguments)
            self._functions[name] = function
        self("log_set", library.log_callback(), None)

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Call ``mtmd_NAME``."""
        return self._functions[f"mtmd_{name}"](*arguments)
