"""Saved conversations: a tree of messages for each chat, in one SQLite file.

`store` reads and writes, `saver` saves a running chat, `transfer` exports and imports.
"""
