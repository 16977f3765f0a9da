"""`localspec worker`: what it says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from without_home import without_a_home

from localspec.cli import call, worker
from localspec.core.endpoint import Endpoint
from localspec.core.errors import LocalspecError
from localspec.llama import devices
from localspec.llama.rpc import plugin
from localspec.loading import soundness


def test_a_user_without_a_name_is_told_how_to_reach_the_worker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_a_home(monkeypatch)
    worker._explain(Endpoint("127.0.0.1", 50052))
    out, err = capsys.readouterr()
    assert "ssh -N -L 50052:127.0.0.1:50052 USER@" in out + err


def test_a_worker_has_the_threads_that_this_process_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def serving(_plugin: object, _endpoint: object, threads: int, *_: object) -> None:
        asked.append(threads)
        raise LocalspecError("enough")

    made = SimpleNamespace(path=Path("plugin"), version="1")
    monkeypatch.setattr(plugin, "obtain", lambda *_, **__: made)
    monkeypatch.setattr(soundness, "required", lambda **_: None)
    monkeypatch.setattr(devices, "physical_cores", lambda: 3)
    monkeypatch.setattr("psutil.cpu_count", lambda **_: 64)
    monkeypatch.setattr("localspec.llama.rpc.serving.Serving", serving)
    assert call(["worker", "--bind", "127.0.0.1:0"]) != 0
    assert call(["worker", "--bind", "127.0.0.1:0", "--threads", "5"]) != 0
    assert asked == [3, 5]
