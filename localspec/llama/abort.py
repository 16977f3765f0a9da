"""A flag that stops a running pass, read by llama.cpp without asking Python."""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp.llama_cpp as c_api


class StopFlag:
    """Set from any thread; llama.cpp looks at it between the operations of a graph.

    llama.cpp calls ``bool abort(void *data)`` some hundred times a pass. A Python function there
    would cost a microsecond each time, and wait for the interpreter whenever another thread has
    it. So the callback is C's own ``strlen``, and the data a C string: empty means go on.
    """

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(2)
        strlen = getattr(ctypes.pythonapi, "strlen", None) or ctypes.CDLL(None).strlen
        self.callback: Any = ctypes.cast(strlen, c_api.ggml_abort_callback)
        self.data = ctypes.cast(self._text, ctypes.c_void_p)

    def set(self) -> None:
        """Stop the running pass and those to come."""
        self._text[0] = b"\x01"

    def clear(self) -> None:
        """Let passes run again."""
        self._text[0] = b"\x00"

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._text.raw[0] != 0
