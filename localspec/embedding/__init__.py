"""Embedding models and rerankers: opened here, or in a process of their own beside a chat model."""
