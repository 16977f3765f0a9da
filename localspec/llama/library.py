"""The llama.cpp library itself: started once per process, its log kept off the screen."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

# llama.cpp forks a debugger to print a stack when it aborts; that takes seconds and floods the
# terminal. It reads the variable when it is loaded.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

from localspec.compiling import own_build, variants
from localspec.core.errors import LocalspecError
from localspec.core.files.log_file import LogFile
from localspec.core.safe_text import safe_text

try:
    import llama_cpp
except (AttributeError, OSError, RuntimeError) as error:  # a library lacks a name, or is not there
    named = os.environ.get(own_build.VARIABLE)
    way_out = f"; {own_build.VARIABLE}={named} names its folder" if named else ""
    raise LocalspecError(f"llama.cpp cannot be loaded: {error}{way_out}") from None

c_api = llama_cpp.llama_cpp

_TILED = "GGML_CPU_TILED_MM"
"""Variable that switches llama.cpp's tiled products of K-quants and IQ types off on x86. It is read
once: before the first pass of the process."""
_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}

libggml: Any = c_api._lib  # noqa: SLF001 - libllama has no other name
"""libllama, by which the functions of the ggml that it is linked to are found. llama-cpp-python's
handle of ggml is of the file among the packages: in a wheel, which has no links, a second copy with
devices of its own; where `LLAMA_CPP_LIB_PATH` names another build, it has none of its devices."""
logger = logging.getLogger("localspec.llama")
_listeners: dict[int, list[str]] = {}
"""Lines for each listening thread, by its id: llama.cpp logs in the thread that called it."""


class _Errors(threading.local):
    """The latest error lines of each thread, which are about its own model."""

    def __init__(self) -> None:
        self.lines: collections.deque[str] = collections.deque(maxlen=20)


_errors = _Errors()


def _on_log(level: int, text: bytes | None, _data: object) -> None:
    priority = _LEVELS.get(level, logging.DEBUG)
    heard = _listeners.get(threading.get_ident())
    if heard is None and priority < logging.ERROR and not logger.isEnabledFor(priority):
        return  # most lines: loading a model logs hundreds that nobody reads
    line = safe_text((text or b"").decode("utf-8", "replace")).rstrip()
    if not line:
        return
    if level == 4:
        _errors.lines.append(line)
    if heard is not None:
        heard.append(line)
    logger.log(priority, "%s", line)


# ctypes callbacks live as long as they are referenced.
_log_callback: Any = c_api.llama_log_callback(_on_log)


def ggml_function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of ggml, which llama-cpp-python does not declare, with its types."""
    function = getattr(libggml, name)
    function.restype, function.argtypes = result, list(arguments)
    return function


def log_callback() -> ctypes.c_void_p:
    """The function that takes the log, for libraries that log by themselves."""
    return ctypes.cast(_log_callback, ctypes.c_void_p)


@functools.cache
def load_backends() -> None:
    """Have a build for many processors load its code for this one; before any model.

    Raises:
        LocalspecError: it has none, or is not to be trusted.
    """
    variants.choose(libggml, folder())


def folder() -> Path:
    """Where llama.cpp's libraries were loaded from."""
    return Path(str(libggml._name)).parent  # noqa: SLF001 - ctypes has no other name for it


@functools.cache
def start() -> None:
    """Start the library and take its log over; further calls do nothing."""
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    c_api.llama_log_set(_log_callback, ctypes.c_void_p(0))
    load_backends()
    c_api.llama_backend_init()


def log_to(path: Path) -> None:
    """Write llama.cpp's log to a file from now on."""
    start()  # which would quieten it again
    handler = LogFile(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for old in logger.handlers[:]:
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def errors_to(stream: TextIO) -> None:
    """Write llama.cpp's errors to a stream too, from now on."""
    start()
    handler = logging.StreamHandler(stream)
    handler.setLevel(logging.ERROR)
    logger.addHandler(handler)


def errors() -> list[str]:
    """llama.cpp's latest error lines in this thread, since `forget_errors`."""
    return list(_errors.lines)


def forget_errors() -> None:
    """Begin anew: what follows is all that `errors` gives."""
    _errors.lines.clear()


def brief(function: Any) -> Any:
    """A function of llama.cpp, called without releasing Python's lock: for what takes less
    than a microsecond. Whoever releases the lock may wait for another thread's turn to end.
    """
    kind: Any = ctypes.PYFUNCTYPE(function.restype, *function.argtypes)
    return kind(ctypes.cast(function, ctypes.c_void_p).value)


@contextlib.contextmanager
def listening(*, alone: bool = True) -> Iterator[list[str]]:
    """The lines that llama.cpp logs in this thread meanwhile, whatever goes into the file.

    Listeners nest. One that is ``alone`` keeps the lines from those around it: what a dry run says
    is no news of a real allocation.
    """
    start()
    me, lines = threading.get_ident(), list[str]()
    outer = _listeners.get(me)
    _listeners[me] = lines
    try:
        yield lines
    finally:
        if outer is None:
            del _listeners[me]
        else:
            _listeners[me] = outer
            if not alone:
                outer.extend(lines)


_switched: set[tuple[str, str]] = set()
"""Variables that were set here, for this process alone."""
_computing: list[bool] = []
"""Whether products are tiled, once a context was made: llama.cpp keeps to that."""


def mark_computing() -> None:
    """Record that a context was made: llama.cpp then no longer reads the switch of tiled
    products.
    """
    if not _computing:
        _computing.append(tiled())


def tiled() -> bool:
    """Whether the processor computes products with many rows in tiles, where it has kernels for
    that; their results differ in the last bits.
    """
    if _computing:
        return _computing[0]
    return os.environ.get(_TILED, "1").strip() != "0"


def environment_of_others() -> dict[str, str]:
    """Variables for other programs that use llama.cpp: without the switch that `untile` set."""
    return {name: value for name, value in os.environ.items() if (name, value) not in _switched}


def untile() -> bool:
    """Switch tiled products off; False if the process has computed with them already."""
    if tiled() and not _computing:
        os.environ[_TILED] = "0"
        _switched.add((_TILED, "0"))
    return not tiled()


def version() -> str:
    """Version of llama-cpp-python, which pins llama.cpp."""
    return str(llama_cpp.__version__)


def commit() -> str:
    """The commit that llama.cpp was built from, as its build recorded it; "" if it did not."""
    if not hasattr(libggml, "ggml_commit"):
        return ""
    name = (ggml_function("ggml_commit", ctypes.c_char_p)() or b"").decode("utf-8", "replace")
    return "" if name == "unknown" else name


def system_info() -> str:
    """llama.cpp's own line about CPU features and build options."""
    start()
    return str(c_api.llama_print_system_info().decode("utf-8", "replace"))
