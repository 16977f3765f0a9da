"""The terminal interface. It stands on `localspec` and is never imported by it."""
