"""Memory of this machine, and what of a pair fits into it."""
