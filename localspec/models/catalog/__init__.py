"""Pairs by name, and the files that a MODEL string names."""
