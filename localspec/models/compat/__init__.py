"""Checks whether a drafter belongs to a target, from their headers."""
