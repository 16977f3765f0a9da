"""Fields of requests, read into what the engine is asked for."""
