"""Pictures of prompts: decoded in a child, and the library of llama.cpp that encodes them."""
