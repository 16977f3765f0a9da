"""Reuse of prompts that were read before: from the sequences of the target, memory and disk."""
