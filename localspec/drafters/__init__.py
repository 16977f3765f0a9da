"""Drafters: they propose the tokens that the target verifies."""
