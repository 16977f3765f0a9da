"""Pairs by name, and the files that a MODEL string names, here and on the Hub: no connections."""
