"""Checks of the log: its bytes, batches, offsets and epochs, and its copies."""
