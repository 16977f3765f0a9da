"""Fields of answers that are made of the events of replies."""
