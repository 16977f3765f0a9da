"""Downloads of pairs, and their removal."""
