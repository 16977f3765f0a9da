"""The process with an embedding model: ``python -m localspec.loading.embedding_child MODEL``.

Native code prints to standard output and may abort the process, so the messages travel on
duplicates of descriptors 0 and 1; the originals lead to nothing and to the log, which is standard
error.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
from typing import Any, BinaryIO

from localspec.core.embedded import line, packed
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files import paths
from localspec.core.processes.children import end_with_parent, failed
from localspec.llama import library
from localspec.loading.embedder import Embedder

LOG = "embedding.log"
"""llama.cpp's log of these processes, in the state folder."""


def main() -> None:
    """Load the model, tell of it, and answer until the input ends."""
    parser = argparse.ArgumentParser(prog="python -m localspec.loading.embedding_child")
    parser.add_argument("model")
    parser.add_argument("--gpu-layers", type=int)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the server
    os.environ["GGML_NO_BACKTRACE"] = "1"
    asked, answers = _pipes()
    try:
        library.log_to(paths.make(paths.state_dir()) / LOG)
        embedder = Embedder(given.model, gpu_layers=given.gpu_layers, threads=given.threads)
    except LocalspecError as error:
        answers.write(line(failed(error)))
        answers.flush()
        return
    with embedder:
        answers.write(line({"info": dataclasses.asdict(embedder.info)}))
        answers.flush()
        for question in asked:
            answers.write(line(_answer(embedder, json.loads(question))))
            answers.flush()


def _answer(embedder: Embedder, message: dict[str, Any]) -> dict[str, Any]:
    try:
        texts, first, truncate = message["texts"], message["first"], bool(message.get("truncate"))
        if "query" in message:
            found = embedder.rank(message["query"], texts, truncate=truncate, first=first)
        else:
            found = embedder.embed(texts, truncate=truncate, first=first)
        return packed(found)
    except LocalspecError as error:
        return failed(error)
    except (MemoryError, OverflowError) as error:
        return failed(UsageError(f"the texts cannot be computed: {error}"))


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return asked, answers


if __name__ == "__main__":
    main()
