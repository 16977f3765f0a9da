"""Pairs of target and draft: the catalogue, where their files are, and whether they match."""
