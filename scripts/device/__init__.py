"""The checks of `scripts/device_check`, by group."""
