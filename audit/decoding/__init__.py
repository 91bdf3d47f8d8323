"""Decoding of batches and records from the bytes of a log."""
