"""The user's input: completion, attachments, pastes, keys."""
