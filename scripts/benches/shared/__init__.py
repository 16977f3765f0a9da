"""What several benches need: turns, prompts, servers."""
