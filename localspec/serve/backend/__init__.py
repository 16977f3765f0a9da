"""What all routes share: the engine and its models, the replies that run, and the counters."""
