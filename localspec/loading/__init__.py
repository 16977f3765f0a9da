"""Loads a pair as its options say."""
