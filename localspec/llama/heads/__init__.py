"""Heads computed by llama.cpp and ggml."""
