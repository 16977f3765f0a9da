"""Parts of a prompt are as large as reading needs, and no larger where a pass cannot be aborted."""

import math

import pytest

from localspec.generation.part_sizes import LEAST_PART, PART, PAUSE_S, SIZES, PartSizes


class Device:
    """Passes of whole tiles: a fixed time, and one for each tile that is begun."""

    def __init__(self, fixed: float, tile_s: float, tile: int = 16, compiling: float = 0.0) -> None:
        self._fixed, self._tile_s, self._tile = fixed, tile_s, tile
        self._compiling = compiling
        self._seen: set[int] = set()

    def seconds(self, tokens: int) -> float:
        first, self._seen = tokens not in self._seen, self._seen | {tokens}
        took = self._fixed + self._tile_s * math.ceil(tokens / self._tile)
        return took + (self._compiling if first else 0.0)


def read(sizes: PartSizes, device: Device, prompt: int) -> list[int]:
    parts = []
    while prompt:
        parts.append(min(prompt, sizes.alone()))
        sizes.learn(parts[-1], device.seconds(parts[-1]))
        prompt -= parts[-1]
    return parts


def test_where_passes_are_aborted_parts_are_large_from_the_first_one_on() -> None:
    assert read(PartSizes(aborts=True), Device(0, 1.0), 600) == [PART, PART, 600 - 2 * PART]


@pytest.mark.parametrize("compiling", [0.0, 20.0])
def test_a_quick_device_reads_large_parts_after_a_few(compiling: float) -> None:
    """2,000 tokens a second: a large part takes 0.13 s."""
    parts = read(PartSizes(aborts=False), Device(0.001, 0.008, compiling=compiling), 8000)
    assert parts[0] == SIZES[0]
    assert set(parts[8:-1]) == {PART}


@pytest.mark.parametrize("compiling", [0.0, 20.0])
def test_a_slow_device_whose_speed_is_flat_reads_short_parts(compiling: float) -> None:
    """250 tokens a second, whatever the size: 64 tokens take 0.26 s, 256 would take a second."""
    sizes, device = PartSizes(aborts=False), Device(0.0, 0.064, compiling=compiling)
    parts = read(sizes, device, 8000)
    assert set(parts[8:-1]) == {64}
    assert device.seconds(sizes.alone()) <= PAUSE_S + 0.01


def test_reading_speed_is_worth_more_than_a_short_pause() -> None:
    """A pass costs 0.4 s, whatever its tokens: short parts would read four times as slowly."""
    parts = read(PartSizes(aborts=False), Device(0.4, 0.001), 8000)
    assert set(parts[8:-1]) == {PART}


def test_a_size_in_between_where_larger_parts_are_no_faster() -> None:
    """Tiles of 128: 64 tokens take as long as 128."""
    parts = read(PartSizes(aborts=False), Device(0.0, 0.3, tile=128), 8000)
    assert set(parts[8:-1]) == {128}


def test_a_part_that_others_wait_for_takes_as_long_as_wanted() -> None:
    sizes = PartSizes(aborts=False)
    sizes.learn(64, 0.32)
    assert sizes.within(0.25) == 48  # 50, but kernels take rows by sixteens
    assert sizes.within(0.01) == LEAST_PART


def test_few_tokens_that_would_be_left_over_are_read_along() -> None:
    assert PartSizes.of(49, 48) == 49
    assert PartSizes.of(48 + LEAST_PART, 48) == 48
    assert PartSizes.of(20, 48) == 20


@pytest.mark.parametrize("seconds", [math.inf, 1e308])
def test_any_time_has_a_part(seconds: float) -> None:
    sizes = PartSizes(aborts=True)
    sizes.learn(100, 0.001)
    assert sizes.within(seconds) == PART
    assert sizes.within(-seconds) == LEAST_PART
