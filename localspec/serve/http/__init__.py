"""HTTP itself: bodies, errors, limits, and who may ask."""
