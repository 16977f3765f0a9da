"""The source of the RPC plugin: two files of the installed llama.cpp, and the headers they need."""

from __future__ import annotations

from pathlib import Path

from localspec.compiling import llama_source
from localspec.compiling.llama_source import Source
from localspec.errors import LocalspecError, WorkerError

FILES = {
    "ggml/include/ggml-alloc.h": "94e4cd069b9313b2ceb35dacec901981e0bb478d8bb31035b7126be091998c23",
    "ggml/include/ggml-backend.h": (
        "46d84cb998105f871240864fd0f55446939a2fe86c5c281afa63a010fb1f65a2"
    ),
    "ggml/include/ggml-cpp.h": "bc15ba002c68685df23faae42df0d2b3d58032011f88b649021ab92485862c72",
    "ggml/include/ggml-rpc.h": "196d2a7434f0abdb01f13c5360e0b118b9f2d66c6452e3a7a844fbecc890205c",
    "ggml/include/ggml.h": "12ee71f99db7db9b353bc02b1fbb57c344ee17c01ac5fb7952b41a637a747ea9",
    "ggml/include/gguf.h": "e56714aab702e5ce62ee587a409643c08f7e93e8fbb77f48ef7cc85075f96fa4",
    "ggml/src/ggml-backend-impl.h": (
        "683e0583268e91e1f50b4ffc416b6523e0cec2dfdb3984c89792bda29e32566b"
    ),
    "ggml/src/ggml-impl.h": "43564db0238aebb7ed68501e346c194866b5dac218d1d37b26baff9f458c00d3",
    "ggml/src/ggml-rpc/ggml-rpc.cpp": (
        "812494f207b78e6af7454bd8042ce582850b1c91733db4144e6297ba940b66bd"
    ),
    "ggml/src/ggml-rpc/transport.cpp": (
        "8177d6106723a7c504ae12f03bdb8edd73ff56aee9347e9a77ac15669ad57f7e"
    ),
    "ggml/src/ggml-rpc/transport.h": (
        "fec7abf4e6cebec0d20e3350c01f2f47d495f90a79c6d829870e09d8a7ef2219"
    ),
}
"""SHA-256 of each file that the plugin is made of, by its path in llama.cpp."""


def find(given: Path | None = None, *, offline: bool = False) -> Source:
    """The source in the folder or archive ``given``, else as `llama_source.find`.

    Raises:
        WorkerError: it is not there, not this version's, or cannot be downloaded.
    """
    wanted = llama_source.Wanted(
        "the plugin for other machines",
        FILES,
        "give a folder with it with --source to `localspec worker`",
    )
    try:
        return llama_source.find(wanted, given, offline=offline)
    except LocalspecError as error:
        raise WorkerError(str(error)) from None


__all__ = ["FILES", "find"]
