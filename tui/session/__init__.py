"""What the interface knows: conversations, replies, statistics. No widgets."""
