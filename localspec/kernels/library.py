"""The compiled library as Python calls it."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.compiling import variants
from localspec.core.errors import LocalspecError, NoKernelError
from localspec.core.files import native

ABI = 1
BUFFER = "CPU_LOCALSPEC"
"""Name of the buffer type that holds packed weights, as llama.cpp's log has it."""
_NEEDED = ("ggml-base", "ggml-cpu")
_NEEDED_OF_SEVERAL = ("ggml-base", "ggml")
_FORMS = ("lib{}.so.0", "lib{}.so", "lib{}.0.dylib", "lib{}.dylib")
"""The names by which llama.cpp's libraries ask for each other come first: in a wheel, which has no
links, another name is another file, and would be loaded as a second copy."""
_MODE = os.RTLD_GLOBAL if sys.platform == "darwin" else ctypes.DEFAULT_MODE
"""macOS looks for what our library lacks among what is loaded so."""

Floats = NDArray[np.float32]


class KernelLibrary:
    """The functions of a library, which is opened by the one door to native code."""

    def __init__(self, path: Path, libraries: Path) -> None:
        """Open the library at ``path``; ``libraries`` is the folder of llama.cpp's own.

        Raises:
            LocalspecError: it is not to be trusted, does not load, or is of another version.
        """
        _load_needed(libraries)
        # Not a PyDLL: products of the proof take a moment.
        self._functions = native.opened(path, ctypes.CDLL)
        self.path = path
        if self._named("abi", ctypes.c_int)() != ABI:
            raise LocalspecError(f"{path} is of another version; delete {path.parent}")

    def _named(self, name: str, result: Any, *arguments: Any) -> Any:
        try:
            function = self._functions[f"localspec_kernels_{name}"]
        except AttributeError:
            raise LocalspecError(f"{self.path} lacks {name}; delete {self.path.parent}") from None
        function.restype, function.argtypes = result, list(arguments)
        return function

    def units(self) -> tuple[str, ...]:
        """Instruction sets in it that this processor has, the best first."""
        names = (self._named("units", ctypes.c_char_p)() or b"").decode("ascii", "replace")
        return tuple(name for name in names.split(",") if name)

    def register(self, unit: str) -> str:
        """Give llama.cpp the kernels of an instruction set; before the first model of the process.

        Returns the one that is in use, which is that of the first call.

        Raises:
            NoKernelError: the processor lacks it.
        """
        function = self._named("register", ctypes.c_char_p, ctypes.c_char_p)
        name = function(unit.encode())
        if name is None:
            raise NoKernelError(f"the processor has no instructions for {unit}")
        return str(name.decode("ascii", "replace"))

    def offer(self, *, on: bool) -> None:
        """Whether weights of models that this thread loads from now on are packed."""
        self._named("offer", None, ctypes.c_int)(int(on))

    def supports(self, ggml_type: int) -> bool:
        """Whether it has kernels for weights of a type."""
        return bool(self._named("supports", ctypes.c_int, ctypes.c_int)(ggml_type))

    def product(
        self, unit: str, ggml_type: int, weights: NDArray[np.uint8], x: Floats, m: int
    ) -> Floats:
        """(n, m): the (n, k) rows of ``x`` times the (m, k) weights, by one thread.

        Raises:
            NoKernelError: it has no kernels for that.
        """
        n, k = x.shape
        x, out = np.ascontiguousarray(x, np.float32), np.full((n, m), np.nan, np.float32)
        weights = np.ascontiguousarray(weights)
        pointer, whole = ctypes.c_void_p, ctypes.c_int64
        function = self._named(
            *("product", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, pointer, pointer, pointer),
            *(whole, whole, whole),
        )
        places = (weights.ctypes.data, x.ctypes.data, out.ctypes.data)
        status = function(unit.encode(), ggml_type, *places, m, k, n)
        if status:
            raise NoKernelError(f"no product of ggml type {ggml_type} with {unit}")
        return out


def _load_needed(folder: Path) -> None:
    """Load llama.cpp's libraries, which are not on the system's path: ours finds them by name then.

    Raises:
        LocalspecError: they are not there, or others could have written them.
    """
    folder = native.closed_libraries(folder)
    several = bool(variants.variants(folder))
    for name in _NEEDED_OF_SEVERAL if several else _NEEDED:
        path = next(
            (p for form in _FORMS if (p := folder / form.format(name)).exists()),
            None,
        )
        if path is None:
            raise LocalspecError(f"{folder} has no lib{name}; is llama-cpp-python built otherwise?")
        try:
            loaded = ctypes.CDLL(str(path), mode=_MODE)
        except OSError as error:
            raise LocalspecError(f"{path} cannot be loaded: {error}") from None
    if several:
        variants.choose(loaded, folder)
        variants.share(folder)


def main(arguments: list[str]) -> int:
    """Print the instruction sets of a library that this processor has, as JSON."""
    path, libraries = map(Path, arguments)
    try:
        sys.stdout.write(json.dumps(KernelLibrary(path, libraries).units()))
    except LocalspecError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
