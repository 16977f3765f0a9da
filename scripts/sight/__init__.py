"""The eye of the demonstration pair: drawn pictures, questions about them, and an encoder."""
