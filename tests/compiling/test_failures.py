"""What the last words of compilers mean."""

from __future__ import annotations

import pytest

from localspec.compiling import cxx


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("g++: fatal error: cannot execute 'cc1plus': vfork: Resource temporarily unavailable", 0),
        ("unit.cpp:1:10: fatal error: simd.h: Too many open files", 0),
        ("unit.cpp:1:10: fatal error: /usr/include/x.h: Input/output error", 1),
        ("unit.cpp:1:10: fatal error: /mnt/nfs/a.h: Stale file handle", 1),
    ],
)
def test_a_passing_lack_is_no_refusal_of_the_source(words: str, remedy: int) -> None:
    failed = cxx.failure(1, words.encode())
    assert failed.lacking
    assert words in failed.why
    assert ["close other programs", "look at that disk"][remedy] in failed.why


@pytest.mark.parametrize("status", [255, 254, 128])
def test_a_status_that_no_signal_gives_is_told_as_none(status: int) -> None:
    failed = cxx.failure(status, b"")
    assert "signal" not in failed.why
    assert not failed.crashed


@pytest.mark.parametrize("status", [-11, 139])
def test_a_signal_is_told_by_its_number(status: int) -> None:
    failed = cxx.failure(status, b"")
    assert "signal 11" in failed.why
    assert failed.crashed
