"""Our kernels in llama.cpp where several models are loaded in one process, at once or in turn."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Files
from waiting import PATIENCE

from localspec.core.errors import Interrupted, LocalspecError
from localspec.llama import library, own_kernels
from localspec.llama.model import Model

ROOT = Path(__file__).parents[2]

_COMPUTES_WHILE_ANOTHER_LOADS = """
import sys, threading
from pathlib import Path
from localspec.llama import own_kernels
from localspec.llama.context import Context
from localspec.llama.model import Model

first, second, library, libraries, unit = sys.argv[1:]
own_kernels.register(Path(library), Path(libraries), unit)
computing = Model(Path(first), gpu_layers=0, own_kernels=True)
assert computing.uses_own_kernels
context = Context(computing, n_ctx=256, threads=1)
passes = []

def compute():
    n = len(passes) + 2  # of another length than before: the graph is made anew
    context.forward([(0, [5] * n, 1)])
    passes.append(n)

def meanwhile(_share):
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()

loaded = Model(Path(second), gpu_layers=0, own_kernels=False, on_progress=meanwhile)
assert passes
assert not loaded.uses_own_kernels
context.close()
"""

_REGISTERED_AFTER_A_DRY_RUN = """
import sys
from pathlib import Path
from localspec.core.errors import LocalspecError
from localspec.llama import own_kernels
from localspec.llama.memory_estimate import dry_run

model, _, library, libraries, unit = sys.argv[1:]
dry_run(Path(model), gpu_layers=0, n_ctx=64, n_batch=64, kv_type="f16")
try:
    own_kernels.register(Path(library), Path(libraries), unit)
except LocalspecError as error:
    assert "has loaded a model without them before" in str(error)
else:
    sys.exit("registered, and would not be used")
assert own_kernels.unit() == ""
"""


def run(program: str, files: Files) -> None:
    """In a process of its own, as native code may end it."""
    kernels = own_kernels.registered()
    if not kernels:
        pytest.skip("llama.cpp computes alone")
    line = [sys.executable, "-c", program, str(files.target), str(files.draft), *kernels]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_a_model_computes_by_them_while_another_is_loaded_without(files: Files) -> None:
    run(_COMPUTES_WHILE_ANOTHER_LOADS, files)


def test_after_a_dry_run_without_them_they_are_refused_rather_than_not_used(files: Files) -> None:
    """llama.cpp keeps its list of buffer types from the first model on, whose weights or not."""
    run(_REGISTERED_AFTER_A_DRY_RUN, files)


def test_a_load_is_cancelled_while_another_goes_on(files: Files) -> None:
    ended = threading.Event()

    def cancelled() -> None:
        with pytest.raises(Interrupted):
            Model(files.draft, gpu_layers=0, cancelled=lambda: True)
        ended.set()

    def meanwhile(_share: float) -> None:
        if not started.is_set():
            started.set()
            threading.Thread(target=cancelled, daemon=True).start()
            assert ended.wait(PATIENCE)

    started = threading.Event()
    with closing(Model(files.target, gpu_layers=0, on_progress=meanwhile)):
        pass


def test_what_was_wrong_with_a_load_is_told_of_no_other(files: Files, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(files.target.read_bytes()[:-1000])
    failed: list[LocalspecError] = []

    def load() -> None:
        with pytest.raises(LocalspecError) as raised:
            Model(broken, gpu_layers=0)
        failed.append(raised.value)

    def meanwhile(_share: float) -> None:
        if not failed:
            thread = threading.Thread(target=load)
            thread.start()
            thread.join()

    with closing(Model(files.target, gpu_layers=0, on_progress=meanwhile)):
        assert failed
        assert library.errors() == []
