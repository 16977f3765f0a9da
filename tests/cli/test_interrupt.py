"""Which signals are one interruption, and which are two."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from localspec.cli import interrupt
from localspec.cli.interrupt import CtrlC


class EndedError(Exception):
    """Stands for the end of this process."""


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def end(code: int) -> None:
        raise EndedError(code)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(interrupt, "_SAME_S", 0.0)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    interrupt.watch()
    yield
    interrupt.watch()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_to_the_group_that_is_passed_on_late_is_one(number: signal.Signals) -> None:
    with CtrlC() as ctrl_c:
        signal.raise_signal(number)
        assert ctrl_c.pressed
        interrupt.passed_on(number)
    interrupt.passed_on(number)  # what follows prints the reply


def test_one_that_came_before_the_command_was_ready_is_one() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with CtrlC() as ctrl_c:
        assert ctrl_c.pressed
        interrupt.passed_on(signal.SIGINT)


def test_one_that_is_only_passed_on_interrupts_and_the_second_ends() -> None:
    with CtrlC() as ctrl_c:
        interrupt.passed_on(signal.SIGINT)
        assert ctrl_c.pressed
        with pytest.raises(EndedError, match="130"):
            interrupt.passed_on(signal.SIGINT)


def test_two_to_the_group_are_two() -> None:
    with CtrlC():
        signal.raise_signal(signal.SIGINT)
        interrupt.passed_on(signal.SIGINT)
        with pytest.raises(EndedError, match="130"):
            signal.raise_signal(signal.SIGINT)


def test_sigterm_that_is_passed_on_after_ctrl_c_ends() -> None:
    with CtrlC():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(EndedError, match="130"):
            interrupt.passed_on(signal.SIGTERM)


def test_the_same_twice_at_once_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "_SAME_S", 1000.0)
    with CtrlC() as ctrl_c:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert ctrl_c.forget()  # a chat in a terminal goes on


def test_ctrl_c_and_sigterm_at_once_end_the_reply_and_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interrupt, "_SAME_S", 1000.0)
    with CtrlC() as ctrl_c:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert ctrl_c.pressed
        assert not ctrl_c.forget()
        assert interrupt.exit_code(130) == 143


def test_sigterm_ends_a_wait_right_after_ctrl_c_has_ended_a_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interrupt, "_SAME_S", 1000.0)
    with CtrlC() as ctrl_c:
        signal.raise_signal(signal.SIGINT)
        assert ctrl_c.forget()
        with pytest.raises(KeyboardInterrupt), ctrl_c.raising():
            signal.raise_signal(signal.SIGTERM)
