"""Answers requests: prompts, prefill, rounds, detokenizing, stop strings, the scheduler."""
