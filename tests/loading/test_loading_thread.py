"""Loading leaves no thread behind that has computed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from localspec.core.errors import Interrupted, ModelFileError
from localspec.core.options import Options
from localspec.loading import loading_thread
from localspec.loading.loading_thread import load_in_thread


class Loads:
    """In the place of `localspec.loading.loader.load`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.thread: threading.Thread | None = None
        self.closed = 0
        self.began = threading.Event()
        self.until: Callable[[Callable[[], bool]], None] = lambda _stopped: None

    def __call__(
        self, _options: object, _on_event: object, stopped: object, **_more: object
    ) -> object:
        self.thread = threading.current_thread()
        self.began.set()
        assert callable(stopped)
        self.until(stopped)
        if self.error is not None:
            raise self.error
        return self

    def close(self) -> None:
        self.closed += 1


def _in_place(monkeypatch: pytest.MonkeyPatch, loads: Loads) -> Loads:
    monkeypatch.setattr(loading_thread, "load", loads)
    return loads


def test_the_thread_that_loads_has_ended_when_the_pair_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads = _in_place(monkeypatch, Loads())
    assert load_in_thread(Options(), None, None) is loads
    assert loads.thread is not None
    assert loads.thread is not threading.current_thread()
    assert not loads.thread.is_alive()
    assert not loads.closed


def test_an_error_of_loading_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = _in_place(monkeypatch, Loads(ModelFileError("no model")))
    with pytest.raises(ModelFileError, match="no model"):
        load_in_thread(Options(), None, None)
    assert loads.thread is not None
    assert not loads.thread.is_alive()


def test_the_caller_can_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def until(stopped: Callable[[], bool]) -> None:
        asked.append(stopped())

    loads = _in_place(monkeypatch, Loads(Interrupted("cancelled")))
    loads.until = until
    with pytest.raises(Interrupted):
        load_in_thread(Options(), None, lambda: True)
    assert asked == [True]


@pytest.mark.parametrize("late", [False, True])
def test_an_interrupt_of_the_program_stops_loading_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    """Ctrl-C arrives while the main thread waits; loading ends early, or succeeds all the same."""
    loads = _in_place(monkeypatch, Loads(None if late else Interrupted("stopped")))
    told = threading.Event()

    def until(stopped: Callable[[], bool]) -> None:
        while not stopped():
            told.wait(0.001)

    loads.until = until

    class Pressed(SimpleNamespace):
        def result(self) -> object:
            if not self.pressed:
                self.pressed = True
                loads.began.wait()
                raise KeyboardInterrupt
            return self.future.result()

        def exception(self) -> object:
            return self.future.exception()

    submit = loading_thread.ThreadPoolExecutor.submit

    def pressing(pool: object, *arguments: object, **more: object) -> Pressed:
        future = submit(pool, *arguments, **more)  # type: ignore[arg-type]
        return Pressed(future=future, pressed=False)

    monkeypatch.setattr(loading_thread.ThreadPoolExecutor, "submit", pressing)
    with pytest.raises(KeyboardInterrupt):
        load_in_thread(Options(), None, None)
    assert loads.closed == (1 if late else 0)
    assert loads.thread is not None
    assert not loads.thread.is_alive()
