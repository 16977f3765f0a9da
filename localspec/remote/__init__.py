"""Engines elsewhere: a client of OpenAI-compatible servers and of `localspec serve`."""
