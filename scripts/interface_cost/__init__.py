"""What the interface costs, measured: the parts of `scripts/bench_interface`."""
