"""The terminal and this process: driver, keys, theme, the desktop, resources."""
