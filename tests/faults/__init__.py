"""Searches for faults; `faults.registry` lists them."""
