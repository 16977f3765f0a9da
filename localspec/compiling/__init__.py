"""What is compiled here against llama.cpp: its source, checked by digests, and the C++ compiler."""
