"""Measurements: speed against plain decoding, exactness, peers."""
