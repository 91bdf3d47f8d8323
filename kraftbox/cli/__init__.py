"""The commands that people type; nothing here is imported by a node's process."""
