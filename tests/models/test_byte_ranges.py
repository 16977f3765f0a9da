"""Which bytes of a file are missing: no byte is forgotten, none is claimed twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.models.hub import byte_ranges
from localspec.models.hub.byte_ranges import Claim, MissingRanges


@pytest.mark.slow
@given(st.integers(0, 5000), st.integers(1, 700), st.randoms(), st.data())
def test_whatever_order_connections_come_and_go_in_every_byte_is_fetched_once(
    size: int, block: int, random_: random.Random, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_ranges, "LEAST_SPLIT", 50)
        ledger, fetched, claims = (
            MissingRanges(size, [(0, size)], block),
            bytearray(size),
            list[Claim](),
        )
        for _ in range(10_000):
            if not ledger.missing:
                break
            claim = ledger.claim() if len(claims) < 4 else None
            if claim is not None:
                claims.append(claim)
            claim = random_.choice(claims)
            n_bytes = min(claim.end - claim.at, random_.randint(0, 300))
            for at in range(claim.at, claim.at + n_bytes):
                fetched[at] += 1
            ledger.advance(claim, n_bytes)
            lost = random_.random() < 0.1
            if lost or (claim.at == claim.end and not ledger.extend(claim)):
                claims.remove(claim)
                ledger.release(claim)
            assert all(fetched[: ledger.frontier])
            lacking = sum(end - start for start, end in ledger.missing)
            assert lacking == fetched.count(0)
        assert ledger.missing == []
        assert fetched == bytearray([1]) * size


def test_a_partial_file_without_a_note_lacks_its_end(tmp_path: Path) -> None:
    part, note = tmp_path / "part", tmp_path / "note"
    assert byte_ranges.read(note, part, 100) == [(0, 100)]
    part.write_bytes(b"x" * 40)
    assert byte_ranges.read(note, part, 100) == [(40, 100)]
    assert byte_ranges.read(note, part, 30) is None


@pytest.mark.parametrize(
    "missing", [[], [[0, 5]], [[0, 100]], [[3, 9], [20, 40]], [[3, 9], [60, 100]]]
)
def test_a_note_is_read_as_it_was_written(tmp_path: Path, missing: list[list[int]]) -> None:
    part, note = tmp_path / "part", tmp_path / "note"
    part.write_bytes(b"x" * 100)
    byte_ranges.write(note, [(a, b) for a, b in missing])
    assert byte_ranges.read(note, part, 100) == [(a, b) for a, b in missing]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"missing": 3}', '{"missing": [[1, 2, 3]]}', '{"missing": [[9, 3]]}'),
        *('{"missing": [[-1, 3]]}', '{"missing": [[0, 101]]}', '{"missing": [[5, 9], [2, 3]]}'),
        *('{"missing": [[1e400, 3]]}', "[" * 100_000, '{"missing": [[0, 60]]}'),
    ],
)
def test_a_note_that_cannot_be_right_begins_the_file_again(tmp_path: Path, text: str) -> None:
    part, note = tmp_path / "part", tmp_path / "note"
    part.write_bytes(b"x" * 50)  # of 100; the last note would need all of them
    note.write_text(text)
    assert byte_ranges.read(note, part, 100) is None
