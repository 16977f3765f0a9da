"""The table of strict mode: a bounded run of it, and that it counts divergences."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from benches import strict as bench_strict

from localspec import Finished, Reply, ReplyRequest, Runtime

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "benches" / "run.py"


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "together"), [("Q4_K_M", "1"), ("Q4_K_M", "3"), ("F16", "3")])
def test_nothing_diverges_in_strict_mode(tmp_path: Path, weights: str, together: str) -> None:
    """In a process of its own: whether products are tiled is decided once for a process."""
    command = [
        sys.executable,
        "-P",
        str(SCRIPT),
        "strict",
        "--out",
        str(tmp_path),
        "--tokens",
        "60",
    ]
    command += ["--weights", weights, "--drafters", "model,suffix", "--together", together]
    home = os.environ | {"LOCALSPEC_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = done.stdout.splitlines()
    assert len(rows) == 1 + 2 * 2 + 1
    assert rows[-1] == "0 divergences"


class Wandering:
    """A runtime whose drafted replies differ from plain ones, every second time."""

    def __init__(self, parallel: int) -> None:
        self._asked = 0
        self.info = SimpleNamespace(parallel=parallel)
        self.pair = SimpleNamespace(control=SimpleNamespace(proof=None))

    def forget(self) -> None:
        pass

    def submit(self, request: ReplyRequest, policy: object = None) -> list[Any]:
        del policy, request
        self._asked += 1
        stats = SimpleNamespace(accepted=1, verified=2)
        reply = SimpleNamespace(tokens=(1, 2, 3 + self._asked % 2), stats=stats)
        return [Finished(cast(Reply, reply))]


class Steady:
    """Plain replies that are always the same."""

    def tokens(self, questions: bench_strict.Questions, at: int) -> tuple[int, ...]:
        del questions, at
        return (1, 2, 3)


@pytest.mark.parametrize("together", [1, 4])
def test_divergences_are_counted(together: int) -> None:
    empty = bench_strict.Cell("F16", "model", together, 0.0, 0, 0, 0, 0, 0)
    runtime, plain = cast(Runtime, Wandering(together)), cast(bench_strict.PlainReplies, Steady())
    (found,) = bench_strict.Series(runtime, [empty], plain).run(12)
    assert found.tokens >= 12
    assert found.tokens == 3 * found.replies
    assert found.divergences == (found.replies + 1) // 2
