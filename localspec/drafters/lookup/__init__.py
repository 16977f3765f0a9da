"""Drafters that copy from the text so far."""
