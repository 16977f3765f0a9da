"""The parts of `scripts/bench_interface`, which measures the cost of the interface."""
