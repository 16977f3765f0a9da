"""The terminal interface. It uses `localspec` and is never imported by it."""
