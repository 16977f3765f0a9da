"""A pair that speaks long, for `scripts/bench peers`."""
