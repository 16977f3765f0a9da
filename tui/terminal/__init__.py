"""The terminal and this process: driver, keys, theme, clipboard, refresh rate."""
