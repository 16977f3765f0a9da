"""Conversations that last: a tree of messages for each chat, in one SQLite file.

`store` reads and writes, `saver` does so behind a running chat, `transfer` exports and imports.
"""
