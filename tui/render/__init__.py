"""Text and tables as lines of styled text."""
