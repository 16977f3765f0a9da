"""The Hugging Face Hub and its cache on disk."""
