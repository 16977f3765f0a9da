"""Models as files: GGUF, compatibility, memory, the Hub, the catalogue, downloads."""
