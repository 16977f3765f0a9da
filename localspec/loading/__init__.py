"""From options to a loaded pair."""
