"""The engine in a process of its own: protocol, child and client.

An interface that shares an interpreter with the decode loop takes up to nine tenths of its speed,
so it talks to a child process instead. `localspec.engine.protocol` documents every message.
"""
