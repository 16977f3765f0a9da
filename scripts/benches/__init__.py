"""What measures speed: `scripts/bench NAME` runs the module NAME of this folder."""
