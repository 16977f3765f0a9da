"""Child processes: how they are started, and what is left of one that crashed."""
