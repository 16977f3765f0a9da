"""What several benches need: turns, texts, schemas, a pair without a model."""
