"""Replies of the engine, cut into what clients get: text, thinking, calls, counts."""
