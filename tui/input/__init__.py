"""What the user types: completion, attachments, pastes, keys."""
