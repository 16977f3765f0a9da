"""The state of the interface: conversations, replies, statistics. No widgets."""
