"""What a command has so far is printed, whatever ends it."""

from __future__ import annotations

import pytest

from localspec.cli.containment import Unfinished
from localspec.core.errors import LocalspecError


@pytest.mark.parametrize(
    "kind", [LocalspecError, KeyboardInterrupt, MemoryError, ZeroDivisionError]
)
def test_what_there_is_so_far_is_printed_after_an_error_of_any_kind(
    capfd: pytest.CaptureFixture[str], kind: type[BaseException]
) -> None:
    def work() -> None:
        with Unfinished() as unfinished:
            unfinished.hold("so far\n")
            raise kind

    with pytest.raises(kind):
        work()
    assert capfd.readouterr().out == "so far\n"


def test_nothing_is_printed_where_the_work_was_done(capfd: pytest.CaptureFixture[str]) -> None:
    with Unfinished() as unfinished:
        unfinished.hold("so far\n")
    assert capfd.readouterr().out == ""
