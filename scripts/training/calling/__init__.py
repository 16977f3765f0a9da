"""A small model that calls tools: the embedded target, trained further on conversations with calls."""
