"""Memory of this machine, and how a pair fits into it."""
