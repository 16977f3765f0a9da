"""Shared by all routes: the engine and its models, the running replies, and the counters."""
