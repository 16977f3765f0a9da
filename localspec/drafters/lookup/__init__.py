"""Drafters that copy from text already known."""
