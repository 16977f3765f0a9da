"""Drafting heads for the embedded target: training, export, checks."""
