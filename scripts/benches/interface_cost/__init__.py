"""The parts of `scripts/bench interface`, which measures the cost of the interface."""
