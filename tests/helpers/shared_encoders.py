"""Models that see or hear, for all tests of a module: their files are written once, and the process
with their projector is started once, which takes half a second of computing.

Nothing of one test reaches another. The files are only read. The process answers every request in
a fork, so it stays as it was when it had loaded the projector; what was made of a picture or a
sound belongs to the runtime that asked, which a test opens for itself. Tests of the process, and
tests that change files, write models of their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from picture_files import Seeing

from localspec.llama import own_kernels
from localspec.llama.encoder_process import EncoderProcess

Writer = Callable[[Path, str], Seeing]


class _Lent:
    """A process that goes on when whoever has it is closed."""

    def __init__(self, process: EncoderProcess) -> None:
        self.facts, self.send = process.facts, process.send

    def close(self) -> None:
        return


class SharedModels:
    """Models by family, and the processes of their encoders."""

    def __init__(self, folder: Path, write: Writer) -> None:
        self._folder, self._write = folder, write
        self._written: dict[str, Seeing] = {}
        self._processes: dict[Any, EncoderProcess] = {}

    def of(self, family: str) -> Seeing:
        if family not in self._written:
            self._written[family] = self._write(self._folder / family, family)
        return self._written[family]

    def process(
        self,
        target: Path,
        projector: Path,
        library: Path,
        digests: Mapping[Path, str],
        *,
        threads: int,
        gpu: bool,
    ) -> _Lent | EncoderProcess:
        """In the place of `EncoderProcess`; whoever asks for other files gets their own."""
        given = (target, projector, library, digests)
        if Seeing(target, projector) not in self._written.values():
            return EncoderProcess(*given, threads=threads, gpu=gpu)
        files = tuple(sorted(digests.items()))
        key = (target, files, library.resolve(), threads, gpu, str(own_kernels.registered()))
        if key not in self._processes:
            self._processes[key] = EncoderProcess(*given, threads=threads, gpu=gpu)
        return _Lent(self._processes[key])

    def close(self) -> None:
        for process in self._processes.values():
            process.close()


@contextlib.contextmanager
def shared_models(folder: Path, write: Writer) -> Iterator[SharedModels]:
    """They end with the block."""
    with contextlib.closing(SharedModels(folder, write)) as made:
        yield made
