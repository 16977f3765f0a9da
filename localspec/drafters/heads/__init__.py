"""Drafters that ask a head on the target's hidden states."""
