"""`localspec worker`: what it says."""

from __future__ import annotations

import pytest
from without_home import without_a_home

from localspec.cli import worker
from localspec.core.endpoint import Endpoint


def test_a_user_without_a_name_is_told_how_to_reach_the_worker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_a_home(monkeypatch)
    worker._explain(Endpoint("127.0.0.1", 50052))
    out, err = capsys.readouterr()
    assert "ssh -N -L 50052:127.0.0.1:50052 USER@" in out + err
