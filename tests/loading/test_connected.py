"""What comes before the devices of workers are used: the workers, then the plugin."""

from __future__ import annotations

import pytest

from localspec.core.errors import Interrupted, WorkerError
from localspec.core.interrupt import never
from localspec.core.options import Options
from localspec.llama.rpc import plugin
from localspec.loading.target import connected


def silent(_: str) -> None:
    """Told what takes time."""


def test_a_worker_is_asked_for_before_the_plugin_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugin, "available", lambda: False)
    monkeypatch.setattr(plugin, "obtain", lambda *_, **__: pytest.fail("the plugin is compiled"))
    with pytest.raises(WorkerError, match="nothing listens"):
        connected(Options(rpc="127.0.0.1:1"), silent, never)


def fails(*_: object, **__: object) -> plugin.Plugin:
    raise WorkerError("the RPC plugin does not compile: the compiler was ended by signal 2")


def test_an_interruption_while_the_plugin_is_compiled_is_one_and_no_failure_of_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugin, "available", lambda: True)
    monkeypatch.setattr(plugin, "obtain", fails)
    with pytest.raises(Interrupted):
        connected(Options(rpc="127.0.0.1:1"), silent, lambda: True)
    with pytest.raises(WorkerError, match="signal 2"):
        connected(Options(rpc="127.0.0.1:1"), silent, never)
