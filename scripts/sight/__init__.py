"""The eye of the demonstration pair: drawn pictures, questions about them, an encoder, its training."""
