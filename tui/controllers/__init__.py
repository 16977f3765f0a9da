"""The objects of the chat screen, one for each subject of its keys and commands."""
