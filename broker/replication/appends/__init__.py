"""Produced batches that are not appended at once: their order, their limits and their reasons."""
