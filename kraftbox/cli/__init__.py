"""The commands for users; a node's process imports nothing from here."""
