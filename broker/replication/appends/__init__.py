"""Produced batches that are not appended at once: early ones, and those with a long check."""
