"""The Hugging Face Hub: questions to it, and pulls of pairs into its cache on disk."""
