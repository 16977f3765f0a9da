"""The user's settings, presets and folders."""
