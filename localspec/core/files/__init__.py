"""Files that localspec writes: whole or absent, readable by their owner only."""
