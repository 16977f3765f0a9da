"""Values and pure functions that every part shares: no model, no clock, no files."""
