"""Pictures, sounds and documents of prompts, each decoded in a process of its own."""
